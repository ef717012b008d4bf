"""The page: its static files with a chart library from npm, the login form, and the routes that only a page needs."""
