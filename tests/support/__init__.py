"""What several tests need: real small runs, stand-ins on the loopback interface, cases worked out by hand."""
