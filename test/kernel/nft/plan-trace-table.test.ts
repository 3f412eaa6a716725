/** The table that makes the kernel trace the packets of one call, as text, and the removal of those that stayed behind. */
import t from 'tap'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { formatNft } from '../../../kernel/nft/nft-text.ts'
import { planTraceTable } from '../../../kernel/nft/plan-trace-table.ts'
import { sweepTraces } from '../../../kernel/nft/trace-packets.ts'

const CALL = {
  protocol: 'tcp',
  sourcePort: 21_000,
  sources: ['10.42.1.5'],
  destinations: ['245.0.0.7', '244.1.0.5'],
} as const

t.test('of IPv4, with an owner', async (t) => {
  const call = { ...CALL, ports: [80, 8080] }
  const init = {
    table: 'sealane_trace_1',
    family: 'ip',
    call,
    markers: [40_001, 40_002],
    seconds: 10,
    owned: true,
  } as const
  t.strictSame(formatNft(planTraceTable(init), 'ip').trimEnd().split('\n'), [
    'add table ip sealane_trace_1 { flags owner; }',
    'add set ip sealane_trace_1 markers { type inet_service; flags timeout; }',
    'add element ip sealane_trace_1 markers {',
    '40001 timeout 10s,',
    '40002 timeout 10s',
    '}',
    'add set ip sealane_trace_1 sources { type ipv4_addr; flags timeout; }',
    'add element ip sealane_trace_1 sources {',
    '10.42.1.5 timeout 10s',
    '}',
    'add set ip sealane_trace_1 destinations { type ipv4_addr; flags timeout; }',
    'add element ip sealane_trace_1 destinations {',
    '245.0.0.7 timeout 10s,',
    '244.1.0.5 timeout 10s',
    '}',
    'add set ip sealane_trace_1 ports { type inet_service; flags timeout; }',
    'add element ip sealane_trace_1 ports {',
    '80 timeout 10s,',
    '8080 timeout 10s',
    '}',
    'add chain ip sealane_trace_1 enters { type filter hook prerouting priority -350; policy accept; }',
    'add rule ip sealane_trace_1 enters ip saddr @sources ip daddr @destinations tcp sport 21000 tcp dport @ports meta nftrace set 1',
    'add rule ip sealane_trace_1 enters ip daddr @sources ip saddr @destinations tcp sport @ports tcp dport 21000 meta nftrace set 1',
    'add chain ip sealane_trace_1 starts { type filter hook output priority -350; policy accept; }',
    'add rule ip sealane_trace_1 starts ip saddr @sources ip daddr @destinations tcp sport 21000 tcp dport @ports meta nftrace set 1',
    'add rule ip sealane_trace_1 starts ip daddr @sources ip saddr @destinations tcp sport @ports tcp dport 21000 meta nftrace set 1',
    'add rule ip sealane_trace_1 starts oifname "lo" udp sport @markers udp dport @markers meta nftrace set 1',
    'add chain ip sealane_trace_1 arrives { type filter hook input priority 350; policy accept; }',
    'add rule ip sealane_trace_1 arrives tcp sport 21000 continue',
    'add rule ip sealane_trace_1 arrives tcp dport 21000 continue',
    'add chain ip sealane_trace_1 leaves { type filter hook postrouting priority 350; policy accept; }',
    'add rule ip sealane_trace_1 leaves tcp sport 21000 continue',
    'add rule ip sealane_trace_1 leaves tcp dport 21000 continue',
  ])
})

t.test('of IPv6, for any sender', async (t) => {
  const call = { protocol: 'udp', sourcePort: 21_000, sources: [], destinations: ['fd00::1'], ports: [53] } as const
  const init = { table: 'sealane_trace_2', family: 'ip6', call, markers: [1], seconds: 5, owned: false } as const
  const text = formatNft(planTraceTable(init), 'ip6')
  t.match(text, /^add table ip6 sealane_trace_2\n/)
  t.notMatch(text, /@sources/)
  t.match(text, /enters ip6 daddr @destinations udp sport 21000 udp dport @ports meta nftrace set 1\n/)
  t.match(text, /fd00::1 timeout 5s/)
})

t.test('a trace that has ended goes, and one that runs stays', async (t) => {
  const nft = new FakeNft()
  const marked = (table: string, keys: readonly string[]) => [
    { verb: 'add-table', table } as const,
    { verb: 'add-map', table, map: 'markers', type: { kind: 'set', key: 'inet_service' } } as const,
    { verb: 'add-elements', table, map: 'markers', elements: keys.map((key) => ({ key })) } as const,
  ]
  await nft.run([
    ...marked('sealane_trace_0a', []),
    ...marked('sealane_trace_0b', ['40001']),
    ...marked('sealane_node', []),
  ])
  await sweepTraces(nft, new AbortController().signal)
  t.strictSame(await nft.tables(''), ['sealane_node', 'sealane_trace_0b'])
})
