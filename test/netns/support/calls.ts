/** A caller that never stops, and a server that answers it: who of many targets is reachable, at every moment. */
import { spawn } from 'node:child_process'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'

const SERVER = `
  const net = require('node:net'), dgram = require('node:dgram')
  for (const port of process.argv.slice(1).map(Number)) {
    net.createServer((socket) => socket.on('error', () => undefined)).listen(port, '::')
    for (const type of ['udp4', 'udp6']) {
      const udp = dgram.createSocket({ type, ipv6Only: type === 'udp6' })
      udp.on('error', () => undefined)
      udp.on('message', (bytes, from) => udp.send(bytes, from.port, from.address))
      udp.bind(port)
    }
  }
  setTimeout(() => console.log('ready'), 300)`

/** Answers calls to these ports. Undefined: in the namespace of the test. */
export async function serve(t: Test, ns: Netns | undefined, ports: readonly number[] = [8080, 9000]): Promise<void> {
  const args = ['-e', SERVER, ...ports.map(String)]
  const child = ns === undefined ? spawn(process.execPath, args) : ns.spawn(process.execPath, args)
  t.teardown(() => child.kill('SIGKILL'))
  await new Promise((resolve) => child.stdout?.once('data', resolve))
}

/** 500 datagrams and 50 connections a second to each target. It prints the counts ten times a second. */
const CALLER = `
  const net = require('node:net'), dgram = require('node:dgram')
  const [own4, own6, ...targets] = process.argv.slice(1)
  const udp = { 4: dgram.createSocket('udp4'), 6: dgram.createSocket('udp6') }
  const answers = Object.fromEntries(targets.map((one) => [one, 0]))
  for (const socket of Object.values(udp)) {
    socket.on('error', () => undefined)
    socket.on('message', (bytes) => { answers[bytes.toString()] += 1 })
  }
  udp[4].bind(0, own4)
  if (own6 !== '') udp[6].bind(0, own6)
  let sent = 0, ticks = 0
  const began = performance.now()
  setInterval(() => {
    for (; sent < (performance.now() - began) / 2; sent += 1) for (const one of targets) {
      const [address, port] = one.split(' '), family = net.isIP(address)
      udp[family].send(one, Number(port), address, () => undefined)
      if (sent % 10 !== 0) continue
      const tcp = net.connect({ host: address, port: Number(port), localAddress: family === 4 ? own4 : own6 })
      tcp.on('connect', () => { answers[one] += 1; tcp.destroy() })
      tcp.on('error', () => undefined)
      tcp.setTimeout(700, () => tcp.destroy())
    }
    if (++ticks % 20 === 0) console.log(JSON.stringify({ sent, answers }))
  }, 5)`

export interface CallsInit {
  readonly from: Netns
  /** The caller's addresses: IPv4, and IPv6 if it calls such a target. */
  readonly own: readonly [string, string?]
  /** Each an address and a port: '10.42.0.5 9000'. */
  readonly targets: readonly string[]
}

interface Counts {
  readonly sent: number
  readonly answers: Readonly<Record<string, number>>
}

export class Calls {
  readonly #child: ReturnType<Netns['spawn']>
  #last: Counts = { sent: 0, answers: {} }

  private constructor(child: ReturnType<Netns['spawn']>) {
    this.#child = child
    let rest = ''
    child.stdout?.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n')
      rest = lines.pop() ?? ''
      const line = lines.at(-1)
      if (line !== undefined) this.#last = JSON.parse(line) as Counts
    })
  }

  static async begin(t: Test, { from: ns, own, targets }: CallsInit): Promise<Calls> {
    const calls = new Calls(ns.spawn(process.execPath, ['-e', CALLER, own[0], own[1] ?? '', ...targets]))
    t.teardown(() => calls.#child.kill('SIGKILL'))
    await eventually(() => calls.sent > 0, { say: 'the calls begin' })
    return calls
  }

  get sent(): number {
    return this.#last.sent
  }

  answered(target: string): number {
    return this.#last.answers[target] ?? 0
  }

  text(): string {
    return JSON.stringify(this.#last)
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.kill('SIGKILL')
    await ended
  }
}
