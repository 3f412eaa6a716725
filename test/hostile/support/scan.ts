/** A scanner: which of many addresses and ports answer, all at once, with short deadlines. */
import type { Netns } from '../../support/netns.ts'

export interface Probe {
  readonly kind: 'tcp' | 'udp' | 'echo'
  readonly address: string
  /** 0 for echo. */
  readonly port: number
}

/** How long a probe waits for its answer. It is sent twice. */
const DEADLINE_MS = 900

/**
 * Sends all probes from these addresses, one for each family; none: the namespace chooses. Returns what answers, by
 * address, sorted: `echo tcp/80`. A reset and an ICMP error are no answers.
 */
export async function scan(
  ns: Netns,
  probes: readonly Probe[],
  own: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const ports = probes.filter(({ kind }) => kind !== 'echo')
  const [text, ...echoed] = await Promise.all([
    ns.exec(process.execPath, ['-e', SCANNER, JSON.stringify({ ports, own, deadlineMs: DEADLINE_MS })]),
    ...probes.filter(({ kind }) => kind === 'echo').map(({ address }) => echo(ns, address, own)),
  ])
  const answered = [...(JSON.parse(text) as Probe[]), ...echoed.flatMap((one) => one ?? [])]
  const found = new Map<string, string[]>()
  for (const { kind, address, port } of answered) {
    const name = kind === 'echo' ? kind : `${kind}/${port}`
    found.set(address, [...(found.get(address) ?? []), name])
  }
  return new Map([...found].map(([address, names]) => [address, names.sort().join(' ')]))
}

async function echo(ns: Netns, address: string, own: readonly string[]): Promise<Probe | undefined> {
  const from = own.find((one) => one.includes(':') === address.includes(':'))
  const source = from === undefined ? [] : ['-I', from]
  const { stdout } = await ns.tryExec('ping', ['-n', '-c', '2', '-i', '0.3', '-W', '1', ...source, address])
  return /[12] received/.test(stdout) ? { kind: 'echo', address, port: 0 } : undefined
}

const SCANNER = `
  const net = require('node:net'), dgram = require('node:dgram')
  const { ports, own, deadlineMs } = JSON.parse(process.argv[1])
  const from = (address) => own.find((one) => one.includes(':') === address.includes(':'))
  const tcp = ({ address, port }, done) => {
    const local = from(address)
    const socket = net.connect({ host: address, port, ...(local === undefined ? {} : { localAddress: local }) })
    socket.on('connect', () => { done(); socket.destroy() }).on('error', () => undefined)
    setTimeout(() => socket.destroy(), deadlineMs)
  }
  const udp = ({ address, port }, done) => {
    const socket = dgram.createSocket(address.includes(':') ? 'udp6' : 'udp4')
    const send = () => socket.send('x', port, address, () => undefined)
    socket.on('message', done).on('error', () => undefined)
    socket.bind(0, from(address), () => { send(); setTimeout(send, deadlineMs / 3) })
    setTimeout(() => socket.close(), deadlineMs)
  }
  const answered = new Set()
  for (const probe of ports) (probe.kind === 'tcp' ? tcp : udp)(probe, () => answered.add(probe))
  setTimeout(() => { console.log(JSON.stringify([...answered])); process.exit() }, deadlineMs + 100)`

/**
 * Begins to note the destinations and sources of packets that come out of a lane, before any rule. Returns a function
 * that reads them.
 */
export async function arrivals(ns: Netns): Promise<(set?: 'seen' | 'sources') => Promise<ReadonlySet<string>>> {
  for (const [family, type] of [
    ['ip', 'ipv4_addr'],
    ['ip6', 'ipv6_addr'],
  ] as const) {
    const table = `table ${family} scanned {
      set seen { type ${type}; flags dynamic; size 1024; }
      set sources { type ${type}; flags dynamic; size 1024; }
      chain first {
        type filter hook prerouting priority -500;
        iifname "sealane*" iifname != "sealane-vx" add @seen { ${family} daddr }
        iifname "sealane*" iifname != "sealane-vx" add @sources { ${family} saddr }
      }
    }`
    await ns.exec('nft', ['-f', '-'], { input: table })
  }
  return async (set = 'seen') => {
    const texts = await Promise.all(
      ['ip', 'ip6'].map((family) => ns.exec('nft', ['list', 'set', family, 'scanned', set])),
    )
    return new Set(texts.flatMap((text) => text.match(/[\da-f]*(?:[.:][\da-f]*){3,}/g) ?? []))
  }
}
