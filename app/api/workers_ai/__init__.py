"""Workers AI's wire: `/client/v4/accounts/{account_id}/…`."""
