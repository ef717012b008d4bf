"""The page: static files without a build step, the login form, and the routes that only a page needs."""
