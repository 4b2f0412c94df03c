"""Policy: ordered rules on requests. Pure: `language` reads them, `match` decides by them. `service` stores their versions."""
