"""The console in a browser; a package, so that pytest closes the browser before other tests."""
