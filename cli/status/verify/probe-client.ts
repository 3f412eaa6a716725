/**
 * The client of probe pods: makes one call and measures it. On a site the command runs it in its own process. Answers
 * are read up to a limit, since another cluster gives them.
 */
import { createHash, randomBytes } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { Resolver, lookup } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { type Socket, connect, isIP } from 'node:net'
import { type Clock, SystemClock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { parseResolvConf, searchedBefore } from './plan-search.ts'
import {
  type FailedCall,
  HELLO_DATAGRAM,
  type HelloAnswer,
  LATENCY_MS,
  MOST_ADDRESSES,
  MOST_LINE,
  type ProbeCall,
  ProbeError,
  type ProbeFailure,
  type ProbeOp,
  type ProbeResult,
  type ProbeResults,
  type Target,
  type TcpRequest,
  datagramOf,
  failedCall,
  helloOfDatagram,
  parseDatagram,
  parseHello,
  parseReceived,
  tcpRequestLine,
} from './probe-wire.ts'

export interface ClientInit {
  readonly run: string
  readonly signal: AbortSignal
  readonly clock?: Clock
  /** The file with the settings of the resolver. */
  readonly resolvConf?: string
}

const PING_MS = 5000
const DATAGRAM_MS = 1000
const DATAGRAM_TRIES = 3
const CHUNK = Buffer.alloc(65_536, 0x2e)
const REFUSED_EVERY_MS = 200
/** So long for a name with its SRV records and search domains. */
const RESOLVE_MS = 15_000
/** After the last octet of a throughput call was sent, so long for the answer. */
const LAST_MS = 10_000

/** Makes the call. Rejects only with the signal's reason: a call that fails is a result. */
export async function callProbe<Call extends ProbeCall>(
  call: Call,
  init: ClientInit,
): Promise<ProbeResult<Call['op']>> {
  try {
    return { ok: true, value: (await made(call, { clock: new SystemClock(), ...init })) as ProbeResults[Call['op']] }
  } catch (error) {
    init.signal.throwIfAborted()
    return failureOf(error)
  }
}

type Init = ClientInit & { readonly clock: Clock }

function made(call: ProbeCall, init: Init): Promise<ProbeResults[ProbeOp]> {
  switch (call.op) {
    case 'resolve':
      return resolveName(call, init)
    case 'hello':
      return hello(call, init)
    case 'refused':
      return refused(call, init)
    case 'connect':
      return connectOnly(call, init)
    case 'bulk':
      return bulk(call, init)
    case 'datagrams':
      return datagrams(call, init)
    case 'throughput':
      return throughput(call, init)
    case 'latency':
      return latency(call, init)
    case 'loss':
      return loss(call, init)
    case 'steady':
      return steady(call, init)
  }
}

const FAILURE_OF: Readonly<Record<string, ProbeFailure>> = {
  ECONNREFUSED: 'refused',
  ECONNRESET: 'closed',
  EPIPE: 'closed',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EADDRNOTAVAIL: 'unreachable',
  ENOTFOUND: 'no-name',
  ENODATA: 'no-name',
  EAI_AGAIN: 'no-name',
  ESERVFAIL: 'no-name',
  ETIMEOUT: 'no-name',
}

function failureOf(error: unknown): FailedCall {
  const { code = '' } = error as NodeJS.ErrnoException
  const failure = error instanceof ProbeError ? error.failure : (FAILURE_OF[code] ?? 'other')
  return failedCall(failure, messageOf(error))
}

/** Runs `work` with a signal that also ends after `ms`. Throws ProbeError `timeout` or `no-name` then. */
async function within<T>(ms: number, { signal, clock }: Init, work: (limited: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(ms, () => late.abort(new ProbeError('timeout', `no answer within ${ms} ms`)))
  const limited = AbortSignal.any([signal, late.signal])
  try {
    limited.throwIfAborted()
    return await work(limited)
  } catch (error) {
    signal.throwIfAborted()
    const isName = error instanceof ProbeError && error.failure === 'no-name'
    throw late.signal.aborted && !isName ? late.signal.reason : error
  } finally {
    cancel()
  }
}

// Names

/** Throws ProbeError `no-name` if the name has no address before the signal ends. */
async function addressOf({ host, family, dns }: Target, signal: AbortSignal): Promise<string> {
  if (isIP(host) !== 0) return host
  const first = await unlessSilent(host, signal, async () => {
    // The resolver of the machine takes no signal, and waits for each server and search domain in turn.
    if (dns === undefined) return (await lookup(host, { family })).address
    return (await withServer(dns, signal, (one) => addressesOf(one, host, family)))[0]
  })
  if (first === undefined) throw new ProbeError('no-name', `${host}: no address of IPv${family}`)
  return first
}

/** Does not wait for `work` beyond the signal. Throws ProbeError `no-name` then. */
async function unlessSilent<T>(name: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  const { promise: silent, reject } = Promise.withResolvers<never>()
  const onAbort = (): void => reject(new ProbeError('no-name', `${name}: the resolver does not answer`))
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  try {
    return await Promise.race([silent, work()])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

async function withServer<T>(
  dns: string | undefined,
  signal: AbortSignal,
  work: (resolver: Resolver) => Promise<T>,
): Promise<T> {
  const resolver = new Resolver({ timeout: 1500, tries: 2 })
  if (dns !== undefined) resolver.setServers([dns])
  const onAbort = (): void => resolver.cancel()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await work(resolver)
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/** Empty if the name has no address of the family. */
async function addressesOf(resolver: Resolver, name: string, family: 4 | 6): Promise<string[]> {
  try {
    return await (family === 4 ? resolver.resolve4(name) : resolver.resolve6(name))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENODATA' || code === 'ENOTFOUND') return []
    throw error
  }
}

function resolveName(call: Extract<ProbeCall, { op: 'resolve' }>, init: Init): Promise<ProbeResults['resolve']> {
  return within(RESOLVE_MS, init, (signal) =>
    unlessSilent(call.name, signal, () => resolved(call, { ...init, signal })),
  )
}

async function resolved(
  { name, srv, dns }: Extract<ProbeCall, { op: 'resolve' }>,
  { resolvConf = '/etc/resolv.conf', signal }: Init,
): Promise<ProbeResults['resolve']> {
  const text = dns === undefined ? await readFile(resolvConf, 'utf8').catch(() => '') : ''
  const settings = parseResolvConf(text.slice(0, 8192))
  return withServer(dns, signal, async (resolver) => {
    const both = async (one: string): Promise<string[]> =>
      (await Promise.all([addressesOf(resolver, one, 4), addressesOf(resolver, one, 6)])).flat()
    const addresses = await both(name)
    const found = srv === undefined ? [] : await resolver.resolveSrv(srv).catch(() => [])
    const before = searchedBefore(name, settings).slice(0, MOST_ADDRESSES)
    return {
      addresses: addresses.sort().slice(0, MOST_ADDRESSES),
      srv: found.slice(0, MOST_ADDRESSES).map((one) => ({ name: one.name, port: one.port })),
      // A server that fails for a search domain fails for each client too, which then goes on.
      before: await Promise.all(
        before.map(async (one) => ({ name: one, addresses: (await both(one).catch(() => [])).length })),
      ),
      ndots: settings.ndots,
    }
  })
}

// TCP

async function connected({ to, signal }: { readonly to: Target; readonly signal: AbortSignal }): Promise<Socket> {
  const host = await addressOf(to, signal)
  signal.throwIfAborted()
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: to.port, allowHalfOpen: true, noDelay: true })
    const onAbort = (): void => void socket.destroy(signal.reason as Error)
    signal.addEventListener('abort', onAbort, { once: true })
    socket.once('close', () => signal.removeEventListener('abort', onAbort))
    socket.once('connect', () => {
      socket.off('error', reject)
      // From here on, errors end the iteration of the socket.
      socket.on('error', () => undefined)
      resolve(socket)
    })
    socket.once('error', reject)
  })
}

/** Opens a connection, sends the request, runs `work`, and closes the connection in any case. */
async function withConnection<T>(
  to: Target,
  request: TcpRequest,
  { run, signal }: Pick<Init, 'run' | 'signal'>,
  work: (socket: Socket) => Promise<T>,
): Promise<T> {
  const socket = await connected({ to, signal })
  try {
    socket.write(tcpRequestLine(run, request))
    return await work(socket)
  } finally {
    socket.destroy()
  }
}

/** What the server says until its end or until `most` octets. Throws ProbeError `closed` for an empty answer. */
async function readUpTo(socket: Socket, most: number): Promise<Buffer> {
  const parts: Buffer[] = []
  let length = 0
  for await (const part of socket as AsyncIterable<Buffer>) {
    parts.push(part)
    length += part.length
    if (length >= most) break
  }
  if (length === 0) throw new ProbeError('closed', 'the connection was closed without an answer')
  return Buffer.concat(parts).subarray(0, most)
}

async function hello(call: Extract<ProbeCall, { op: 'hello' }>, init: Init): Promise<ProbeResults['hello']> {
  const { protocol, to, tries, timeoutMs } = call
  let last: unknown
  for (let i = 0; i < tries; i += 1) {
    try {
      const began = init.clock.monotonic()
      const once = protocol === 'tcp' ? helloTcp : helloUdp
      const said = await within(timeoutMs, init, (signal) => once(to, { ...init, signal }))
      return { ...said, ms: init.clock.monotonic() - began }
    } catch (error) {
      init.signal.throwIfAborted()
      last = error
    }
  }
  throw last
}

function helloTcp(to: Target, init: Init): Promise<HelloAnswer> {
  return withConnection(to, { op: 'hello', bytes: 0 }, init, async (socket) => {
    const said = parseHello((await readUpTo(socket, MOST_LINE)).toString('utf8').trimEnd(), init.run)
    if (said === undefined) throw new ProbeError('foreign', 'something answered that is no probe of this run')
    return said
  })
}

async function helloUdp(to: Target, init: Init): Promise<HelloAnswer> {
  const data = await exchange(to, datagramOf(init.run, { op: 'hello', sequence: 0 }, HELLO_DATAGRAM), init)
  const said = helloOfDatagram(data, init.run)
  if (said === undefined) throw new ProbeError('foreign', 'something answered that is no probe of this run')
  return said
}

async function refused(call: Extract<ProbeCall, { op: 'refused' }>, init: Init): Promise<ProbeResults['refused']> {
  const { to, timeoutMs, limitMs } = call
  const began = init.clock.monotonic()
  for (;;) {
    const once = { op: 'hello', protocol: 'tcp', to, tries: 1, timeoutMs } as const
    const result = await callProbe(once, init)
    const ms = init.clock.monotonic() - began
    if (!result.ok) return { ms, failure: result.failure }
    if (ms >= limitMs) return { ms }
    await init.clock.sleep(REFUSED_EVERY_MS, init.signal)
  }
}

async function connectOnly({ to, timeoutMs }: Extract<ProbeCall, { op: 'connect' }>, init: Init) {
  const began = init.clock.monotonic()
  const socket = await within(timeoutMs, init, (signal) => connected({ to, signal }))
  socket.destroy()
  return { ms: init.clock.monotonic() - began }
}

async function bulk(call: Extract<ProbeCall, { op: 'bulk' }>, init: Init): Promise<ProbeResults['bulk']> {
  const { to, bytes, timeoutMs } = call
  const sent = randomBytes(bytes)
  const began = init.clock.monotonic()
  const isSame = await within(timeoutMs, init, (signal) =>
    withConnection(to, { op: 'bulk', bytes }, { ...init, signal }, async (socket) => {
      socket.write(sent)
      const back = await readUpTo(socket, bytes)
      return hashOf(back) === hashOf(sent)
    }),
  )
  return { ms: init.clock.monotonic() - began, bytes, isSame }
}

function hashOf(data: Buffer): string {
  return createHash('sha256').update(data).digest('hex')
}

async function throughput(
  { to, streams, seconds }: Extract<ProbeCall, { op: 'throughput' }>,
  init: Init,
): Promise<ProbeResults['throughput']> {
  const began = init.clock.monotonic()
  const until = began + 1000 * seconds
  const received = await within(1000 * seconds + LAST_MS, init, (signal) =>
    Promise.all(Array.from({ length: streams }, () => oneStream(to, until, { ...init, signal }))),
  )
  return { ms: init.clock.monotonic() - began, bytes: received.reduce((sum, one) => sum + one, 0) }
}

/** The octets that the server says it received. */
function oneStream(to: Target, until: number, init: Init): Promise<number> {
  return withConnection(to, { op: 'sink', bytes: 0 }, init, async (socket) => {
    let sent = 0
    const lost = new Promise<never>((_resolve, reject) => socket.once('close', () => reject(closed())))
    lost.catch(() => undefined)
    while (init.clock.monotonic() < until) {
      sent += CHUNK.length
      const isFull = !socket.write(CHUNK)
      if (isFull) await Promise.race([lost, new Promise((resolve) => socket.once('drain', resolve))])
    }
    socket.end()
    const received = parseReceived((await readUpTo(socket, MOST_LINE)).toString('utf8'), sent)
    if (received === undefined) throw new ProbeError('foreign', 'the server did not say how much it received')
    return received
  })
}

function closed(): ProbeError {
  return new ProbeError('closed', 'the connection was closed')
}

const PING = Buffer.alloc(32, 0x2e)

async function latency({ to, count }: Extract<ProbeCall, { op: 'latency' }>, init: Init) {
  const times: number[] = []
  const until = init.clock.monotonic() + LATENCY_MS
  await within(LATENCY_MS + PING_MS, init, (signal) =>
    withConnection(to, { op: 'ping', bytes: 0 }, { ...init, signal }, async (socket) => {
      const parts = (socket as AsyncIterable<Buffer>)[Symbol.asyncIterator]()
      while (times.length < count && init.clock.monotonic() < until) {
        const began = init.clock.monotonic()
        socket.write(PING)
        for (let got = 0; got < PING.length;) {
          const next = await parts.next()
          if (next.done === true) throw closed()
          got += next.value.length
        }
        times.push(init.clock.monotonic() - began)
      }
    }),
  )
  return { ...percentiles(times), count: times.length }
}

/** By nearest rank. */
export function percentiles(times: readonly number[]): Pick<ProbeResults['latency'], 'p50' | 'p99' | 'p999'> {
  const sorted = [...times].sort((a, b) => a - b)
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
}

async function steady(
  { to, seconds, intervalMs, isOpenOnly = false }: Extract<ProbeCall, { op: 'steady' }>,
  init: Init,
) {
  const until = init.clock.monotonic() + 1000 * seconds
  let sent = 0
  let lost = 0
  let longestMs = 0
  const running = new Set<Promise<void>>()
  const one = async (): Promise<void> => {
    const began = init.clock.monotonic()
    const call = isOpenOnly
      ? connectOnly({ op: 'connect', to, timeoutMs: 5000 }, init)
      : hello({ op: 'hello', protocol: 'tcp', to, tries: 1, timeoutMs: 5000 }, init)
    await call.then(
      () => (longestMs = Math.max(longestMs, init.clock.monotonic() - began)),
      () => (lost += 1),
    )
  }
  while (init.clock.monotonic() < until) {
    sent += 1
    const next: Promise<void> = one().finally(() => running.delete(next))
    running.add(next)
    await init.clock.sleep(intervalMs, init.signal)
  }
  await Promise.all(running)
  init.signal.throwIfAborted()
  return { sent, lost, longestMs }
}

// UDP

type Receive = (data: Buffer) => void

/** Opens a socket to the target for `work`. */
async function withSocket<T>(
  to: Target,
  { signal }: Pick<Init, 'signal'>,
  work: (send: (data: Buffer) => Promise<void>, onData: (receive: Receive) => void) => Promise<T>,
): Promise<T> {
  const host = await addressOf(to, signal)
  const socket = createSocket(isIP(host) === 6 ? 'udp6' : 'udp4')
  const failed = new Promise<never>((_resolve, reject) => {
    socket.on('error', reject)
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
  })
  failed.catch(() => undefined)
  try {
    // A connected socket receives from the target alone, and reports that nobody listens there.
    await Promise.race([failed, new Promise<void>((resolve) => socket.connect(to.port, host, resolve))])
    const send = (data: Buffer): Promise<void> =>
      new Promise((resolve, reject) => socket.send(data, (error) => (error === null ? resolve() : reject(error))))
    return await Promise.race([failed, work(send, (receive) => void socket.on('message', receive))])
  } finally {
    socket.close()
  }
}

/** Sends one datagram, again every second, until an answer of this run comes. */
function exchange(to: Target, data: Buffer, init: Init): Promise<Buffer> {
  return withSocket(to, init, async (send, onData) => {
    const answered = new Promise<Buffer>((resolve) =>
      onData((part) => {
        if (parseDatagram(part, init.run, 'answered') !== undefined) resolve(part)
      }),
    )
    await send(data)
    return answered
  })
}

async function datagrams({ to, sizes }: Extract<ProbeCall, { op: 'datagrams' }>, init: Init) {
  const passed: number[] = []
  for (const size of sizes) {
    const asked = datagramOf(init.run, { op: 'echo', sequence: size }, size)
    for (let i = 0; i < DATAGRAM_TRIES; i += 1) {
      // The first one may be lost while the kernel learns the MTU of the path.
      const back = await within(DATAGRAM_MS, init, (signal) => exchange(to, asked, { ...init, signal })).catch(
        () => undefined,
      )
      init.signal.throwIfAborted()
      if (back === undefined || back.length !== asked.length) continue
      passed.push(size)
      break
    }
  }
  return { passed }
}

async function loss({ to, count, intervalMs }: Extract<ProbeCall, { op: 'loss' }>, init: Init) {
  const { clock, signal } = init
  const sentAt = new Map<number, number>()
  const times: number[] = []
  await within(PING_MS + 2 * count * intervalMs, init, (limited) =>
    withSocket(to, { signal: limited }, async (send, onData) => {
      onData((part) => {
        const { sequence = -1 } = parseDatagram(part, init.run, 'answered') ?? {}
        const began = sentAt.get(sequence)
        if (began === undefined) return
        sentAt.delete(sequence)
        times.push(clock.monotonic() - began)
      })
      for (let sequence = 0; sequence < count; sequence += 1) {
        sentAt.set(sequence, clock.monotonic())
        // What a full buffer or an ICMP error refuses is lost.
        await send(datagramOf(init.run, { op: 'echo', sequence }, 200)).catch(() => undefined)
        await clock.sleep(intervalMs, limited)
      }
      if (sentAt.size > 0) await clock.sleep(DATAGRAM_MS, limited)
    }),
  )
  signal.throwIfAborted()
  return { sent: count, lost: count - times.length, jitterMs: jitterOf(times) }
}

/** The mean difference of two round trips that follow each other, in milliseconds. */
export function jitterOf(times: readonly number[]): number {
  if (times.length < 2) return 0
  const differences = times.slice(1).map((time, i) => Math.abs(time - (times[i] ?? 0)))
  return differences.reduce((sum, one) => sum + one, 0) / differences.length
}
