"""The ways in which a plan can be run, one file each. `omnigraph.read.execute` lists them."""
