"""Three-way merge of compiled schemas, by identity; pure, without storage."""
