"""The options of every verb, one file each. They import next to nothing, so that help comes at once."""
