/** `sealane diagnose reach`: what a member's gateways report of their ways, from a bundle as from the live state. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { packTar } from '../../../cli/bundle/tar.ts'
import { reachReport } from '../../../explain/reach-report.ts'
import { brokenMember, changeLinks } from '../../explain/broken-member.ts'
import { factSet } from '../../support/objects/member-facts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { runCli } from '../run-cli.ts'

const OBSERVED = [{ kind: 'observed', address: '198.51.100.7', port: 4500 }]

/** All ends are behind NAT; the link to paris is relayed, that to tokyo goes over port 443. */
const RELAYED = brokenMember(
  (at) => {
    for (const { spec } of at('Endpoint')) Object.assign(spec, { candidates: OBSERVED })
    changeLinks(at, ({ cluster }) => cluster === 'paris', {
      ...{ usingRelay: 'oslo', usingAddress: '203.0.113.9:4601', usingNat: true },
      candidates: [
        { kind: 'relay', relay: 'oslo', at: '203.0.113.9:4601', state: 'in-use', rttMs: 20, loss: 0, mtu: 1420 },
        {
          ...{ kind: 'observed', at: '198.51.100.7:4500', state: 'failed', reason: 'LaneConnecting' },
          since: '2026-11-25T11:58:00Z',
        },
      ],
    })
    changeLinks(at, ({ cluster }) => cluster === 'tokyo', {
      ...{ usingRelay: 'tcp-443 relay.example', usingAddress: '127.0.0.1:999', usingNat: true },
      candidates: [
        {
          ...{ kind: 'punched', state: 'failed', reason: 'UdpUnanswered' },
          note: 'probes between the places of the two ends get no answer',
        },
      ],
    })
    for (const { status } of at('Gateway')) {
      const conditions = status.conditions as object[]
      const at = '2026-11-25T10:00:00Z'
      conditions.push({
        ...{ type: 'PortMapped', status: 'False', reason: 'RouterMapsNoPorts', lastTransitionTime: at },
        message: 'the router 192.168.0.1\u001b[2J is silent',
      })
      conditions.push({
        ...{ type: 'NatFilters', status: 'True', reason: 'NatLetsInKnownPorts', lastTransitionTime: at },
        message: 'the NAT lets in few\u001b[2J',
      })
      status['relays'] = [
        { name: 'oslo', at: '203.0.113.9:4600', state: 'answers', seenAt: '198.51.100.7:61000', rttMs: 7 },
        {
          ...{ name: 'tcp-443 relay.example', state: 'waiting', proxy: 'http://proxy.example:3128' },
          ...{ reason: 'RelayUnreachable', note: 'no answer' },
        },
      ]
    }
  },
  { gateways: 1 },
)

function bundle(t: Test, objects: Parameters<typeof factSet>[0]): string {
  const file = join(temporaryFolder(t), 'member.tar.gz')
  const content = Buffer.from(JSON.stringify(factSet(objects)))
  writeFileSync(file, gzipSync(packTar([{ name: 'sealane-gather/facts.json', content }], 0)))
  return file
}

t.test('the rung of each link, and why not a better one', async (t) => {
  const file = bundle(t, RELAYED)
  const diagnose = (...args: readonly string[]) => runCli(['diagnose', 'reach', '--bundle', file, ...args])
  const lanes = await runCli(['diagnose', 'lanes', '--bundle', file])
  const { code, stdout, stderr } = await diagnose()
  t.same([code, stderr], [lanes.code, ''], 'the exit code is that of the lanes')
  const lines = [
    '  seen by relays     198.51.100.7:61000',
    '  behind NAT         unknown: nothing shows a NAT',
    '  NAT filters        yes (NatLetsInKnownPorts): the NAT lets in few?[2J',
    '  NAT leads back     unknown: relays have not measured it',
    '  NAT keeps ports    unknown: no two relays see it, so that its NAT is not known, if there is one',
    '  router maps ports  no (RouterMapsNoPorts): the router 192.168.0.1?[2J is silent',
    '  UDP passes         yes: the link to paris is up by UDP',
    '  relay              oslo at UDP 203.0.113.9:4600: answers, 7.00 ms',
    '  relay              tcp-443 relay.example: waiting, through the proxy http://proxy.example:3128, RelayUnreachable: no answer',
    '  link to tokyo, lane 0 to lane 0: up, tcp-443 by tcp-443 relay.example',
    '    not punched: UdpUnanswered: probes between the places of the two ends get no answer',
    '    not relayed: no member offers a relay that both ends reach',
    '  link to paris, lane 0 to lane 0: up, relayed by oslo',
    '    not direct: LaneConnecting: neither gateway can be called from outside, as far as is known; nothing has answered at 198.51.100.7:4500 since 2026-11-25T11:58:00Z',
    '    next: sealane diagnose host',
  ]
  for (const line of lines) t.ok(stdout.split('\n').includes(line), `${line}\n${stdout}`)
  t.notMatch(stdout, /in-use/)
  const wide = await diagnose('-o', 'wide')
  t.match(wide.stdout, '    relay oslo 203.0.113.9:4601: in-use, 20.00 ms, 0 % loss, MTU 1420\n')
  t.match(
    wide.stdout,
    '    observed 198.51.100.7:4500: failed, first 2m0s ago (LaneConnecting), not measured: it has not carried the link\n',
  )
  const json = JSON.parse((await diagnose('-o', 'json')).stdout) as object
  t.match(json, { area: 'reach', gateways: [{ node: 'gw0', udp: { is: 'yes' }, links: [{ rung: 'tcp-443' }, {}] }] })
  t.match((await runCli(['diagnose', 'rech', '--bundle', file])).stderr, /expected .*host, reach/)
})

t.test('a member whose links are all direct has nothing to do, and one without gateways says so', (t) => {
  const well = reachReport(factSet(brokenMember(() => undefined)))
  const links = well.gateways.flatMap((gateway) => gateway.links)
  t.equal(links.length, 8)
  t.ok(links.every(({ next, notBetter }) => next === undefined && notBetter.length === 0))
  t.match(reachReport({}), { gateways: [], silent: [] })
  t.end()
})
