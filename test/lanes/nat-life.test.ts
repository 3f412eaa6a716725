/**
 * For how long a NAT of the kernel keeps a mapping, measured by a relay in the kernel.
 *
 *   end 10.1.0.2 ── NAT 203.0.113.1 ── relay 203.0.113.9
 */
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { RELAY_LAST_PORT, RELAY_PORT } from '../../model/kernel-ids.ts'
import type { HoldEndLine, HoldEndProgramInit } from '../gateway/support/hold-end-program.ts'
import type { RelayProgramInit } from '../gateway/support/relay-program.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'

const skip = netnsMissing() ?? false
t.setTimeout(120_000 * SLOWNESS)

const CLUSTERSET = 'alps'
const RELAY = '203.0.113.9'
const SUPPORT = join(import.meta.dirname, '..', 'gateway', 'support')
/** The NAT forgets between the two waits, and before both where all packets passed within the first two seconds. */
const FORGETS_SECONDS = { nf_conntrack_udp_timeout: 4, nf_conntrack_udp_timeout_stream: 9 }
const WAITS_MS = [6000, 13_000]

const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))

async function wire(one: Netns, other: Netns, names: readonly [string, string], at: readonly [string, string]) {
  await ip(one, `link add ${names[0]} type veth peer name ${names[1]} netns ${other.name}`)
  for (const [i, ns] of [one, other].entries()) {
    await ip(ns, `address add ${at[i] ?? ''}/24 dev ${names[i] ?? ''}`)
    await ip(ns, `link set ${names[i] ?? ''} up`)
  }
}

/** Starts a program that prints lines of JSON. */
function start(ns: Netns, file: string, init: unknown, onLine: (line: string) => void): void {
  const program = join(SUPPORT, file)
  const child = ns.spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, JSON.stringify(init)])
  for (const stream of [child.stdout, child.stderr]) if (stream !== null) createInterface(stream).on('line', onLine)
}

t.test('an answer comes before the NAT has forgotten, and none after', { skip }, async (t) => {
  await withNetns((end) =>
    withNetns((nat) =>
      withNetns(async (relay) => {
        await wire(end, nat, ['wan', 'lan'], ['10.1.0.2', '10.1.0.1'])
        await wire(nat, relay, ['wan', 'wan'], ['203.0.113.1', RELAY])
        await ip(end, 'route add default via 10.1.0.1')
        for (const [setting, seconds] of Object.entries(FORGETS_SECONDS))
          await nat.exec('sysctl', ['-qw', `net.netfilter.${setting}=${seconds}`])
        for (const ns of [nat, relay]) await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
        const chain = 'type nat hook postrouting priority srcnat; oifname wan masquerade;'
        const input = `table ip nat {\n chain out { ${chain} }\n}\n`
        await nat.exec('nft', ['-f', '-'], { input })

        const [ours, theirs] = [generateWireguardKey(), generateWireguardKey()]
        const relayInit: RelayProgramInit = {
          ...{ clusterset: CLUSTERSET, privateKey: theirs.privateKey, identity: theirs.publicKey, address: RELAY },
          ...{ controlPort: RELAY_PORT, ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } },
          ...{ bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 },
          ends: [{ member: 'paris', identity: ours.publicKey }],
        }
        const said: string[] = []
        start(relay, 'relay-program.ts', relayInit, (line) => said.push(line))
        const isOpen = async () => (await relay.exec('ss', ['-Huln'])).includes(`:${RELAY_PORT} `)
        await eventually(isOpen, { deadlineMs: 30_000, say: 'a relay' })

        const endInit: HoldEndProgramInit = {
          ...{ clusterset: CLUSTERSET, privateKey: ours.privateKey, identity: ours.publicKey },
          relay: { identity: theirs.publicKey, at: `${RELAY}:${RELAY_PORT}` },
          waitsMs: WAITS_MS,
        }
        const lines: HoldEndLine[] = []
        start(end, 'hold-end-program.ts', endInit, (line) => lines.push(JSON.parse(line) as HoldEndLine))
        const isOver = () => lines.length === WAITS_MS.length
        await eventually(isOver, { deadlineMs: 40_000, say: 'both waits are over' }).catch((error: unknown) => {
          t.comment(said.join(' '))
          throw error
        })
        const results = lines.map(({ waitMs, result, seen }) => [waitMs, result, seen.split(':')[0]])
        t.strictSame(results.sort(), [
          [13_000, 'silent', '203.0.113.1'],
          [6000, 'answered', '203.0.113.1'],
        ])
      }),
    ),
  )
})
