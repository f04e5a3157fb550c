package client

// Waiting returns how many hits wait for the next exchange.
func (c *Client) Waiting() int {
	c.coalescer.mu.Lock()
	defer c.coalescer.mu.Unlock()
	return c.coalescer.waiting.Len()
}
