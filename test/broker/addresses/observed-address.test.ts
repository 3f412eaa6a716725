/** Which of a member's addresses count as its own; each row is one situation. */
import t from 'tap'
import { parsePrefix } from '../../../model/values/ip.ts'
import { nextHops } from '../../../runtime/machine-network.ts'
import { type ObservedView, observedAddressProblem } from '../../../broker/members/joining.ts'
import { facts, join_, joinRequest, startBroker } from '../support/harness.ts'

const VIEW: ObservedView = {
  sourcesKept: true,
  near: ['10.42.0.7', '10.42.0.1'],
  ranges: ['10.52.0.0/16', '10.43.0.0/16', '244.0.0.0/8', 'fd00:42::/48'].map((text) => parsePrefix(text)),
}

const ROWS: readonly [say: string, address: string, doubt: string | undefined, view?: Partial<ObservedView>][] = [
  ['a node of a member', '198.51.100.20', undefined],
  ['a private network', '192.168.1.10', undefined],
  ['the bridge that this pod hangs on', '10.42.0.1', 'it belongs to this machine or to a next hop that forwards to it'],
  ['a pod of a member', '10.52.3.4', 'it is in 10.52.0.0/16, a range of this clusterset'],
  ['a Service', '10.43.0.1', 'it is in 10.43.0.0/16, a range of this clusterset'],
  ['a global address', '244.7.0.1', 'it is in 244.0.0.0/8, a range of this clusterset'],
  ['a lane', '246.0.1.0', 'it is in 246.0.0.0/8, a range of this clusterset'],
  ['loopback', '127.0.0.1', 'it is loopback'],
  ['IPv6', '2001:db8::7', 'gateways need an IPv4 address'],
  ['IPv4 in IPv6, which the transport takes apart', '::ffff:192.0.2.1', 'it is not a valid address'],
  ['no address', '', 'it is not a valid address'],
  [
    'behind a Service that hides who calls',
    '198.51.100.20',
    'the Service of this broker replaces source addresses with those of nodes',
    { sourcesKept: false },
  ],
]

t.test('doubts', async (t) => {
  for (const [say, address, doubt, view] of ROWS)
    t.equal(observedAddressProblem(address, { ...VIEW, ...view }), doubt, say)
})

t.test('joining', async (t) => {
  const counts = async (address: string, sourcesKept = true): Promise<boolean> => {
    const harness = await startBroker(t, { config: { sourcesKept } })
    const request = await joinRequest(harness, { facts: facts(['10.42.0.0/16']) })
    return (await harness.broker.join(request, address)).observedCounts
  }
  t.equal(await counts('192.0.2.1'), true)
  t.equal(await counts('10.42.0.1'), false, 'inside the pods of the one who joins')
  t.equal(await counts('192.0.2.1', false), false, 'nothing can be told')
})

t.test('joining where another member has the range', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'hub', { facts: facts(['10.42.0.0/16']) })
  const request = await joinRequest(harness, { cluster: 'paris', facts: facts(['10.52.0.0/16']) })
  t.equal((await harness.broker.join(request, '10.42.0.1')).observedCounts, false)
  t.ok(harness.logger.messages('info').includes('the observed address of a member is not published'))
})

t.test('next hops of /proc/net/route', (t) => {
  const lines = [
    'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT',
    'eth0\t00000000\t01002A0A\t0003\t0\t0\t0\t00000000\t0\t0\t0',
    'eth0\t00002A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0',
    'eth0\t0000A8C0\tFE0200C0\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0',
    '',
  ]
  t.strictSame(nextHops(lines.join('\n')), ['10.42.0.1', '192.0.2.254'])
  t.strictSame(nextHops(''), [])
  t.end()
})
