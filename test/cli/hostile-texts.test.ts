/** What members and brokers call themselves steers no terminal, and makes no line of its own in an answer. */
import t from 'tap'
import { GATEWAY_COLUMNS, SERVICE_COLUMNS } from '../../cli/commands/broker-published.ts'
import { planText } from '../../cli/commands/topology.ts'
import { printItems, renderTable } from '../../cli/context/output.ts'
import { rowOf } from '../../cli/status/verify/check-outcome.ts'
import { verifyReport, verifyText } from '../../cli/status/verify/verify-report.ts'
import { relayRows } from '../../cli/status/relay-rows.ts'
import { forTerminal } from '../../model/conditions.ts'
import { endpointObject } from '../support/objects/cluster-objects.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'

const HARMLESS = 'x'
/** A line break, an escape sequence, a reversed text, another line break, a bell, and half a character. */
const HOSTILE = `x\n# change 9\r\u001b[2J\u009b1m\u202egnp\u2066\u2028\u0007\ud800`
const STEERS = /[^\P{Cc}\n]|[\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u

const TOPOLOGY = (name: string): string =>
  planText({
    ...{ basedOn: 1, mode: { before: 'full', after: 'hub-and-spoke' }, members: 4 },
    links: { after: 3, lost: 1, gained: 1 },
    changes: [
      { clusters: [name, 'a'], change: 'lost' },
      { clusters: ['a', name], change: 'gained' },
      { clusters: [name, 'b'], change: 'transit' },
      { clusters: [name, 'c'], change: 'direct' },
    ],
    services: [
      {
        ...{ exporter: name, namespace: name, name, loses: [name], losesCount: 1 },
        ...{ gains: [name], gainsCount: 30 },
      },
    ],
    ...{ servicesChanged: 1, alone: [name], unknown: [name] },
    transit: {
      ...{ links: 1, moved: 2, withoutRelay: [name], unreachable: [[name, 'b']], unreachableCount: 1 },
      crowded: [{ via: [name], links: 9, room: 1, member: name, linksOfMember: 3, roomOfMember: 1 }],
    },
  })

const ANSWERS: Readonly<Record<string, (name: string) => string>> = {
  'topology plan, topology set': TOPOLOGY,
  'broker gateways': (name) =>
    renderTable(GATEWAY_COLUMNS, [{ cluster: name, node: name, lane: 0, addresses: [name, name] }]),
  'broker services': (name) =>
    renderTable(SERVICE_COLUMNS, [
      {
        ...{ namespace: name, name, type: 'ClusterSetIP', ips: [name] },
        ...{ exporters: [name], exportersCount: 1, drainedAt: [name], importers: [name], importersCount: 9 },
      },
    ]),
  'show relays': (name) => {
    const relay = endpointObject({ cluster: 'paris', capabilities: ['relay'] })
    const rows = relayRows({
      gateways: [gatewayObject('gw')],
      endpoints: [{ ...relay, metadata: { name }, spec: { ...relay.spec, cluster: name, node: name } }],
      notice: name,
    })
    return renderTable([{ title: 'RELAY', cell: ({ relay: one, offeredBy }) => `${one} ${offeredBy}` }], rows)
  },
  'verify --failover': (name) => {
    const outcome = { measured: `${name} has no two gateways`, reason: 'OneGatewayOnly', isSkipped: true } as const
    const row = rowOf({ check: 'failover', isSkipped: false }, name, outcome, 1)
    return verifyText(verifyReport([row], { run: name, namespace: name, members: [name] }))
  },
}

for (const [command, answer] of Object.entries(ANSWERS)) {
  t.test(command, async (t) => {
    const lines = (name: string): readonly string[] => answer(name).split('\n')
    t.equal(lines(HOSTILE).length, lines(HARMLESS).length, 'as many lines as with other names')
    t.notMatch(answer(HOSTILE), STEERS, 'also before it is made safe for a terminal')
  })
}

t.test('JSON and YAML keep the value, or steer nothing', async (t) => {
  for (const format of ['json', 'yaml'] as const) {
    let said = ''
    const output = { answer: (text: string) => void (said += forTerminal(text)), remark: () => undefined }
    await printItems(output, format, [{ name: HOSTILE }], [])
    t.notMatch(said, STEERS, format)
    t.notMatch(said, /^# change/m, format)
    if (format === 'json') t.same(JSON.parse(said), { items: [{ name: HOSTILE }] })
  }
})
