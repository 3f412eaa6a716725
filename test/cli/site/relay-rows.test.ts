/** The relays that `sealane show relays` lists. */
import t from 'tap'
import { relayRows } from '../../../cli/status/relay-rows.ts'
import { encodeRelayNotice } from '../../../model/lanes/lanes.ts'
import type { ConnectionStatus, Endpoint, Gateway } from '../../../model/objects.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'

const WEB = 'tcp-443 relay.example.org'

function endpoint(cluster: string, node: string, capabilities: readonly string[]): Endpoint {
  const publicKey = 'xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg='
  return endpointObject({ cluster, node, publicKey, candidates: [], capabilities: [...capabilities] })
}

function connection(cluster: string, change: Partial<ConnectionStatus>): ConnectionStatus {
  const rest = { lane: 0, message: '', usingNat: false, rxBytes: 0, txBytes: 0, endpoint: `${cluster}.gw-lane0` }
  return { cluster, state: 'up', ...rest, ...change }
}

function gateway(name: string, connections: readonly ConnectionStatus[]): Gateway {
  const status = { version: '1', lanes: [], conditions: [], connections: [...connections] }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name }, status }
}

t.test('relays with what this cluster knows of them', (t) => {
  const endpoints = [
    endpoint('oslo', 'gw', ['relay', 'relay-load-3']),
    endpoint('oslo', 'gw2', ['relay']),
    endpoint('bern', 'gw', ['relay', 'relay-load-99']),
    endpoint('roma', 'gw', ['relay-load-3']),
  ]
  const gateways = [
    gateway('w1', [
      connection('oslo', { usingAddress: '203.0.113.1:4500', rttMs: 12 }),
      connection('oslo', { endpoint: 'oslo.gw2-lane0', usingAddress: '203.0.113.2:4500', rttMs: 5 }),
      connection('roma', { usingAddress: '203.0.113.1:4607', usingRelay: 'oslo' }),
      connection('pisa', { usingAddress: '127.0.0.1:9000', usingRelay: WEB }),
    ]),
    gateway('w2', [connection('oslo', { usingAddress: '203.0.113.1:4500', rttMs: 9 })]),
  ]
  const notice = encodeRelayNotice({ addresses: ['wss://relay.example.org/', 'nonsense'] })
  t.strictSame(relayRows({ gateways, endpoints, notice }), [
    { relay: 'bern.gw-lane0', carries: 'datagrams', offeredBy: 'bern', links: [] },
    {
      ...{ relay: 'oslo.gw-lane0', carries: 'datagrams', offeredBy: 'oslo', rttMs: 9, load: 0.3 },
      links: [{ node: 'w1', cluster: 'roma' }],
    },
    { relay: 'oslo.gw2-lane0', carries: 'datagrams', offeredBy: 'oslo', rttMs: 5, links: [] },
    { relay: WEB, carries: 'tcp-443', offeredBy: 'broker', links: [{ node: 'w1', cluster: 'pisa' }] },
  ])
  t.strictSame(relayRows({ gateways: [], endpoints: [], notice: undefined }), [])
  const relays = [
    { name: WEB, state: 'connected' as const, reason: 'RelayAddressShared', note: 'why' },
    { name: 'oslo', state: 'refuses' as const, reason: 'RelayRefused' },
  ]
  const [w1, w2] = ['w1', 'w2'].map((name) => gateway(name, []))
  if (w1?.status === undefined || w2 === undefined) throw new Error('gateways')
  const spare = [{ name: WEB, state: 'idle' as const, note: 'same process as tcp-443 other' }]
  const [remarked] = relayRows({
    ...{ endpoints: [], notice },
    gateways: [{ ...w1, status: { ...w1.status, relays: spare } }],
  })
  t.strictSame(
    [remarked?.troubles, remarked?.remarks],
    [undefined, [{ node: 'w1', note: 'same process as tcp-443 other' }]],
  )
  const troubled = [{ ...w1, status: { ...w1.status, relays } }, w2]
  t.strictSame(relayRows({ gateways: troubled, endpoints: [], notice }), [
    {
      ...{ relay: WEB, carries: 'tcp-443', offeredBy: 'broker' },
      ...{ troubles: [{ node: 'w1', reason: 'RelayAddressShared', note: 'why' }], links: [] },
    },
  ])
  t.end()
})
