package api

// top lists the features with the most hits.
func (e *endpoints) top(x *exchange) error {
	query, alone, err := topQuery(x.request)
	if err != nil {
		return err
	}
	if query.Event != "" {
		if _, err := e.service.EventOrDomain(query.Event); err != nil {
			return err
		}
	}
	asked, processes := e.peers.Asked(query), e.peers.Processes()
	if alone {
		asked, processes = query, 1
	}
	if err := x.HoldAnswer(int64(asked.N * topBytes * processes)); err != nil {
		return err
	}
	list := e.service.Top(asked)
	if alone {
		e.Reply(x, e.peers.Alone(list))
	} else {
		e.Reply(x, e.peers.Top(x.request.Context(), tokenOf(x.request.Header).Text, list, query))
	}
	return nil
}
