package batch

// Apart does work in company. Where run fails in a way that one piece of the work may have spoilt for the others, each
// half is done for itself, and so on, so that in the end the piece alone fails: its own result has the error. There are
// at most tries further runs; what is left then fails as a whole.
func Apart[In, Out any](
	work []In, tries int, spoilt func(error) bool, run func(work []In) ([]Result[Out], error),
) []Result[Out] {
	results := make([]Result[Out], 0, len(work))
	var do func(work []In)
	do = func(work []In) {
		found, err := run(work)
		switch {
		case err == nil:
			results = append(results, found...)
		case len(work) > 1 && tries > 1 && spoilt(err):
			tries -= 2
			half := len(work) / 2
			do(work[:half])
			do(work[half:])
		default:
			for range work {
				results = append(results, Result[Out]{Err: err})
			}
		}
	}
	do(work)
	return results
}
