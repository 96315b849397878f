package postgres

import "testing"

func TestServeConfig_TakesPoolSizeFromFlagThenURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		url  string
		flag int32
		want int32
	}{
		{"postgres://u@h/db", 0, servePoolSize},
		{"postgres://u@h/db?pool_max_conns=7", 0, 7},
		{"postgres://u@h/db?pool_max_conns=7", 9, 9},
	} {
		config, err := Database{test.url}.ServeConfig(test.flag)
		if err != nil {
			t.Fatal(err)
		}
		if config.MaxConns != test.want {
			t.Errorf("%s with --pool-size %d opens %d connections, want %d", test.url, test.flag, config.MaxConns,
				test.want)
		}
		if len(config.ConnConfig.RuntimeParams) != 0 {
			t.Errorf("sessions start with %v", config.ConnConfig.RuntimeParams)
		}
	}
}
