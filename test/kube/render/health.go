package main

import (
	"encoding/json"
	"fmt"
	"io"

	lua "github.com/yuin/gopher-lua"
)

// question is a health script as Argo CD keeps it, and an object to judge.
type question struct {
	Script string         `json:"script"`
	Object map[string]any `json:"object"`
}

// health runs scripts in the interpreter that Argo CD has, with `obj` set, and gives what each returned. Only the base,
// table and string libraries are there.
func health(input io.Reader) ([]any, error) {
	var questions []question
	if err := json.NewDecoder(input).Decode(&questions); err != nil {
		return nil, err
	}
	answers := []any{}
	for _, one := range questions {
		answer, err := judge(one)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func judge(one question) (any, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		"": lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", toLua(state, one.Object))
	if err := state.DoString(one.Script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returned no table")
	}
	return map[string]string{
		"status":  table.RawGetString("status").String(),
		"message": table.RawGetString("message").String(),
	}, nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, toLua(state, item))
		}
		return table
	}
	return lua.LNil
}
