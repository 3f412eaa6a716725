import t from 'tap'
import { agoText, connectionRows } from '../../../cli/status/gateway-rows.ts'
import type { Condition, Gateway } from '../../../model/objects.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'

const NOW = Date.parse('2026-01-01T00:10:00Z')
const SILENT: Condition = {
  type: 'Ready',
  status: 'Unknown',
  reason: 'GatewayStatusStale',
  message: '',
  lastTransitionTime: '2026-01-01T00:09:50Z',
}

function gateway(heartbeatTime: string | undefined, conditions: readonly Condition[] = []): Gateway {
  const rest = { lane: 0, endpoint: 'e', message: '', usingNat: false, rxBytes: 0, txBytes: 0 }
  const connections = [
    { cluster: 'paris', state: 'up', ...rest },
    { cluster: 'rome', state: 'down', ...rest },
  ] as const
  const beat = heartbeatTime === undefined ? {} : { heartbeatTime }
  const status = { version: '1', lanes: [], connections, conditions, ...beat }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'w1' }, status }
}

t.test('an old word is not up', (t) => {
  const rows: readonly (readonly [beat: string | undefined, silent: boolean, want: string[]])[] = [
    ['2026-01-01T00:09:57.2Z', false, ['up 2 ', 'down 2 ']],
    ['2026-01-01T00:09:31Z', false, ['up 29 ', 'down 29 ']],
    [
      '2026-01-01T00:09:30Z',
      false,
      ['unknown 30 was up, last heard 30s ago', 'unknown 30 was down, last heard 30s ago'],
    ],
    [
      '2026-01-01T00:05:48Z',
      false,
      ['unknown 252 was up, last heard 4m12s ago', 'unknown 252 was down, last heard 4m12s ago'],
    ],
    ['2026-01-01T00:12:00Z', false, ['up 0 ', 'down 0 ']],
    [
      '2026-01-01T00:09:50Z',
      true,
      ['unknown 10 was up, last heard 10s ago', 'unknown 10 was down, last heard 10s ago'],
    ],
    ['2026-01-01T00:12:00Z', true, ['unknown 0 was up, last heard 0s ago', 'unknown 0 was down, last heard 0s ago']],
    [undefined, false, ['up undefined ', 'down undefined ']],
  ]
  for (const [beat, silent, want] of rows) {
    const shown = connectionRows([gateway(beat, silent ? [SILENT] : [])], NOW)
    const texts = shown.map(({ state, heardSecondsAgo, message }) => `${state} ${heardSecondsAgo} ${message}`)
    t.strictSame(texts, want, `${beat} ${silent}`)
  }
  t.end()
})

t.test('members through which alone a connection goes', (t) => {
  const via = (text: string | undefined) => {
    const annotations = text === undefined ? {} : { 'sealane.io/via': text }
    const endpoint = endpointObject({ cluster: 'paris' }, { name: 'e', annotations })
    return connectionRows([gateway(undefined)], NOW, { endpoints: [endpoint] })[0]?.via
  }
  t.strictSame([via(undefined), via('oslo,riga'), via('')], [undefined, ['oslo', 'riga'], undefined])
  t.end()
})

t.test('ages', (t) => {
  const rows: readonly (readonly [number, string])[] = [
    [0, '0s ago'],
    [59, '59s ago'],
    [60, '1m0s ago'],
    [252, '4m12s ago'],
    [3599, '59m59s ago'],
    [3660, '1h1m ago'],
    [90_000, '25h0m ago'],
  ]
  for (const [seconds, want] of rows) t.equal(agoText(seconds), want)
  t.end()
})
