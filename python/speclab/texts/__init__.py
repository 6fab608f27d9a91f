"""What is made of texts for drafters: training texts, features for heads, datastores."""
