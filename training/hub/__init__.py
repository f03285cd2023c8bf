"""What is exchanged with the tools of Hugging Face and MLflow."""
