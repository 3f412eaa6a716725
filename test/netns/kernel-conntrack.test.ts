/** Connection tracking of a real kernel: programs on loopback call each other, and a rule translates an address. */
import { createSocket } from 'node:dgram'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, type Socket, connect, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { Conntrack } from '../../kernel/conntrack/ctnetlink.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { type ConnectionStage, connectionsCompliance } from '../compliance/connections.ts'
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
const ENDING = [
  'udp_timeout',
  'udp_timeout_stream',
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

inPrivateNetns(t, import.meta.url, () => {
  for (const address of [CALLER, '10.60.0.5', '10.60.0.6', '10.60.0.7', SILENT])
    sh(`ip address add ${address}/32 dev lo`)
  sh('ip route add local 245.0.0.7 dev lo')
  execFileSync('nft', ['-f', '-'], { input: RULES })
  // A UDP conversation has no end that can be seen, and closed TCP connections stay listed for minutes.
  for (const state of ENDING) sh(`sysctl -qw net.netfilter.nf_conntrack_${state}=1`)

  connectionsCompliance(t, (t: Test) => {
    const stage = new Loopback()
    t.teardown(() => stage.end())
    return Promise.resolve(stage)
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
