"""The pipeline file: from YAML to frozen values, with the position of every mistake."""
