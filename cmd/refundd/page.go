package main

import (
	"refundd/api"
	page "refundd/console"
)

// offerConsole puts the page for people in front of the API.
func (s *service) offerConsole() error {
	h, err := page.New(api.CurrencyDigits())
	if err != nil {
		return err
	}
	s.api.Handler = page.Over(s.api.Handler, h)
	return nil
}

// tellConsole says where it is.
func tellConsole(c console, url, key string) {
	c.printf("# For people: %s%s shows what waits, what happened, and the decision to take. Its key:\n# %s\n\n", url,
		page.Path, key)
}
