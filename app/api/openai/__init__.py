"""Routes of OpenAI's API under the account, as Workers AI has them."""
