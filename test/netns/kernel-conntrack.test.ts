/** Connection tracking of a real kernel: programs on loopback call each other, and a rule translates an address. */
import { createSocket } from 'node:dgram'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, type Socket, connect, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { Conntrack } from '../../kernel/nfnetlink/ctnetlink.ts'
import type { TranslatedFlow } from '../../kernel/nfnetlink/connection-table.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import {
  type ConnectionStage,
  type FlowStage,
  connectionsCompliance,
  flowsCompliance,
  flowText,
  flowsOf,
} from '../compliance/connections.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'

const CALLER = '10.42.1.5'
const SILENT = '10.60.0.9'
const RULES = `table ip t {
  chain calls {
    type nat hook output priority -100;
    ip daddr 245.0.0.7 dnat to 10.60.0.7
  }
  chain arrives {
    type filter hook input priority 0;
    ip daddr ${SILENT} drop
  }
}`
/** The datagrams are no burst: the kernel treats UDP as a lasting conversation after two seconds. */
const SAY_AGAIN_MS = 20
/** The timeouts of connections that have ended or are silent. */
const UDP_TIMEOUTS = ['udp_timeout', 'udp_timeout_stream']
const ENDING = [
  ...UDP_TIMEOUTS,
  'tcp_timeout_close',
  'tcp_timeout_close_wait',
  'tcp_timeout_fin_wait',
  'tcp_timeout_last_ack',
  'tcp_timeout_syn_sent',
  'tcp_timeout_time_wait',
]

const sh = (line: string): void => {
  const [tool = '', ...args] = line.split(' ')
  execFileSync(tool, args)
}

const FLOW_RULES = `table inet flows {
  map to4 { type ipv4_addr . inet_service : ipv4_addr . inet_service; }
  map to6 { type ipv6_addr . inet_service : ipv6_addr . inet_service; }
  chain calls {
    type nat hook output priority -101;
    meta l4proto udp dnat ip to ip daddr . udp dport map @to4
    meta l4proto udp dnat ip6 to ip6 daddr . udp dport map @to6
  }
}`

function end(text: string): { readonly family: 'udp4' | 'udp6'; readonly address: string; readonly port: number } {
  const colon = text.lastIndexOf(':')
  const address = text.slice(0, colon).replaceAll(/[[\]]/g, '')
  return { family: address.includes(':') ? 'udp6' : 'udp4', address, port: Number(text.slice(colon + 1)) }
}

class Loopback implements ConnectionStage {
  readonly table = new Conntrack({ clock: new SystemClock() })
  readonly #ends: (() => void)[] = []

  /** Answers all callers until the test is over. */
  async open(protocol: 'tcp' | 'udp', to: string): Promise<() => void> {
    return protocol === 'tcp' ? this.#openTcp(to) : this.#openUdp(to, Infinity)
  }

  async disturb(): Promise<void> {
    await this.#openUdp('10.60.0.5', 1)
    const unheard = connect({ port: 9, host: SILENT, localAddress: CALLER })
    unheard.on('error', () => undefined)
    this.#ends.push(() => unheard.destroy())
  }

  async end(): Promise<void> {
    for (const end of this.#ends) end()
    // A closed connection still has an entry, which would count towards the limit of the next test's listing.
    const empty = async (): Promise<boolean> => (await this.table.scan(0, () => undefined)).whole
    await eventually(empty, { say: 'the table is empty' })
  }

  async #openTcp(host: string): Promise<() => void> {
    const answering = new Set<Socket>()
    const server = createServer((socket) => answering.add(socket.on('error', () => undefined)))
    await once(server.listen(0, '0.0.0.0'), 'listening')
    const socket = connect({ port: (server.address() as AddressInfo).port, host, localAddress: CALLER })
    await once(socket, 'connect')
    const end = (): void => {
      socket.destroy()
      server.close()
      for (const one of answering) one.destroy()
    }
    this.#ends.push(end)
    return end
  }

  async #openUdp(host: string, times: number): Promise<() => void> {
    const [caller, answerer] = [createSocket('udp4'), createSocket('udp4')]
    await once(answerer.bind(0, host), 'listening')
    await once(caller.bind(0, CALLER), 'listening')
    answerer.on('message', (said, { port, address }) => answerer.send(said, port, address))
    let said = 0
    const say = (): void => {
      if (said++ < times) caller.send('hello', answerer.address().port, host)
    }
    const timer = setInterval(say, SAY_AGAIN_MS)
    const end = (): void => {
      clearInterval(timer)
      caller.close()
      answerer.close()
    }
    this.#ends.push(end)
    const heard = once(caller, 'message')
    say()
    await heard
    return end
  }
}

/** Sends one datagram for each flow. The translation is a map, which gets an element for each called address. */
class Datagrams implements FlowStage {
  readonly table = new Conntrack({ clock: new SystemClock() })
  #translated = ''

  static make(t: Test): Promise<Datagrams> {
    const stage = new Datagrams()
    // One datagram each; the flows have to last as long as the test.
    for (const state of UDP_TIMEOUTS) sh(`sysctl -qw net.netfilter.nf_conntrack_${state}=60`)
    execFileSync('nft', ['-f', '-'], { input: FLOW_RULES })
    t.teardown(async () => {
      for (const family of [4, 6] as const) await stage.table.forget(await flowsOf(stage.table, family))
      sh('nft delete table inet flows')
      for (const state of UDP_TIMEOUTS) sh(`sysctl -qw net.netfilter.nf_conntrack_${state}=1`)
    })
    return Promise.resolve(stage)
  }

  async begin(client: string, called: string, server: string): Promise<void> {
    const [from, to, by] = [end(client), end(called), end(server)]
    if (called !== server) {
      const map = to.family === 'udp6' ? 'to6' : 'to4'
      const element = `${to.address} . ${to.port} : ${by.address} . ${by.port}`
      const input = `flush map inet flows ${map}; add element inet flows ${map} { ${element} }`
      if (this.#translated !== input) execFileSync('nft', ['-f', '-'], { input })
      this.#translated = input
    }
    const socket = createSocket(from.family)
    socket.on('error', () => undefined)
    await once(socket.bind(from.port, from.address), 'listening')
    await new Promise((resolve) => socket.send('hello', to.port, to.address, resolve))
    const isThere = async (): Promise<boolean> => {
      const flows = await flowsOf(this.table, to.family === 'udp6' ? 6 : 4)
      return !to.address.startsWith('245.') || flows.some((flow) => flowText(flow) === `${client} ${called} ${server}`)
    }
    await eventually(isThere, { say: `${client} ${called} ${server}` })
    socket.close()
  }
}

inPrivateNetns(t, import.meta.url, () => {
  for (const address of [CALLER, '10.60.0.5', '10.60.0.6', '10.60.0.7', SILENT])
    sh(`ip address add ${address}/32 dev lo`)
  for (const route of ['245.0.0.7', '245.0.0.8', 'fd53:ea1a:4e00::f500:7']) sh(`ip route add local ${route} dev lo`)
  for (const address of ['fd42::5', 'fd60::5']) sh(`ip address add ${address}/128 dev lo nodad`)
  execFileSync('nft', ['-f', '-'], { input: RULES })
  // A UDP conversation has no end that can be seen, and closed TCP connections stay listed for minutes.
  for (const state of ENDING) sh(`sysctl -qw net.netfilter.nf_conntrack_${state}=1`)

  connectionsCompliance(t, (t: Test) => {
    const stage = new Loopback()
    t.teardown(() => stage.end())
    return Promise.resolve(stage)
  })

  flowsCompliance(t, (t) => Datagrams.make(t))

  t.test('TCP connections without an answer are listed apart from others, and forgotten', async (t) => {
    const stage = new Loopback()
    t.teardown(() => stage.end())
    const list = async (prefix: string, state: 'answered' | 'unanswered'): Promise<TranslatedFlow[]> => {
      const found: TranslatedFlow[] = []
      const { whole } = await stage.table.calls({ called: parsePrefix(prefix), state, limit: 100 }, (c) =>
        found.push(c),
      )
      t.ok(whole)
      return found
    }
    const close = await stage.open('tcp', '245.0.0.7')
    await stage.disturb()
    await eventually(async () => (await list(`${SILENT}/32`, 'unanswered')).length === 1, { say: 'its SYN is listed' })
    t.match(await list('245.0.0.0/16', 'answered'), [
      { protocol: 'TCP', called: { address: '245.0.0.7' }, server: { address: '10.60.0.7' }, zone: 0 },
    ])
    const [call] = await list('245.0.0.0/16', 'answered')
    t.ok((call?.idleSeconds ?? Infinity) < 60, 'its packets have come of late')
    const asked = [...(await list('245.0.0.0/16', 'answered')), ...(await list(`${SILENT}/32`, 'unanswered'))].map(
      ({ client, server }) => ({ protocol: 'TCP', client, server }) as const,
    )
    t.strictSame(await stage.table.states(asked), ['answered', 'unanswered'])
    t.strictSame(await list('245.0.0.0/16', 'unanswered'), [])
    t.strictSame(await list(`${SILENT}/32`, 'answered'), [])
    t.strictSame(await list('fd42::/64', 'unanswered'), [], 'nor is there any of the other family')
    const silent = await list(`${SILENT}/32`, 'unanswered')
    t.match(silent, [{ protocol: 'TCP', client: { address: CALLER }, called: { address: SILENT, port: 9 } }])
    t.equal(await stage.table.forget(silent), 1)
    t.equal(await stage.table.forget(silent), 0)
    t.equal((await list('245.0.0.0/16', 'answered')).length, 1, 'the other one goes on')
    close()
    await eventually(async () => (await stage.table.states(asked))[0] === 'closing', { say: 'it is closed' })
  })

  t.test('a listing has a deadline', async (t) => {
    const clock = new FakeClock()
    // The timer is due before the kernel's answer is read.
    const ended = t.rejects(
      new Conntrack({ clock, timeoutMs: 5 }).scan(10, () => undefined),
      { code: 'TIMEOUT' },
    )
    await clock.advance(5)
    await ended
    t.strictSame(clock.pending(), [])
  })
})
