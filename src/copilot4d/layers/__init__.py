"""Network parts that the tokenizer and the world model share. All feature maps are channels last."""
