package api

// top lists the features with the most hits.
func (e *endpoints) top(x *exchange) error {
	query, alone, err := topQuery(x.request)
	if err != nil {
		return err
	}
	if query.Event != "" {
		if _, err := e.service.Event(query.Event); err != nil {
			return err
		}
	}
	fleet := e.peers
	if alone {
		fleet = nil
	}
	asked := fleet.Asked(query)
	if err := x.admission.Hold(int64(asked.N * topBytes * fleet.Processes())); err != nil {
		return err
	}
	e.reply(x, fleet.Top(x.request.Context(), tokenOf(x.request.Header).Text, e.service.Top(asked), query))
	return nil
}
