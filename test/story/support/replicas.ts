/** Brokers on one log in this process, each behind its own TLS port on loopback, which it keeps across restarts. */
import { once } from 'node:events'
import { type Server, type Socket, connect, createServer } from 'node:net'
import type { Test } from 'tap'
import { CertificateAuthority } from '../../../broker/identity/certificate-authority.ts'
import { Broker } from '../../../broker/broker.ts'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import { fixSettings } from '../../../broker/store/open-store.ts'
import type { ClusterId } from '../../../model/ids.ts'
import type { BrokerClient } from '../../../protocol/broker-client.ts'
import type { AddressBook } from '../../../protocol/broker-addresses.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { fingerprint } from '../../../protocol/identity/certificates.ts'
import { createJoinToken, hashTokenSecret } from '../../../protocol/identity/token.ts'
import { type Identity, createCsr } from '../../../protocol/identity/x509.ts'
import { connectBroker } from '../../../protocol/transport/grpc-client.ts'
import { type BrokerServer, serveBroker } from '../../../protocol/transport/grpc-server.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { silent } from '../../protocol/site.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

export interface Member extends Identity {
  readonly id: ClusterId
}

interface Running {
  readonly broker: Broker
  readonly server: BrokerServer
  readonly front: Front
  readonly streams: Set<ClusterId>
}

const CLUSTERSET = 'demo'
const clock = new SystemClock()

export class Replicas {
  readonly log: RecordLog
  readonly addresses: readonly string[]
  readonly #authority: CertificateAuthority
  readonly #limits: { readonly connectionAgeMs: number; readonly drainMs: number }
  readonly #running: (Running | undefined)[] = []
  readonly #clients: BrokerClient[] = []
  #joined = 0

  static async start(
    t: Test,
    limits: { readonly connectionAgeMs: number; readonly drainMs: number },
  ): Promise<Replicas> {
    const stateDir = temporaryFolder(t)
    const log = openMemoryLog()
    const authority = await CertificateAuthority.open(
      { clock, log },
      { stateDir, clusterset: CLUSTERSET, hosts: ['127.0.0.1'], memberMs: 24 * 3_600_000 },
    )
    const ports = [await freePort(), await freePort(), await freePort()]
    const replicas = new Replicas(log, authority, ports, limits)
    t.teardown(() => replicas.#close())
    await fixSettings(replicas.log, {
      ...DEFAULT_BROKER_CONFIG,
      stateDir,
      clusterset: CLUSTERSET,
      advertise: replicas.addresses,
    })
    for (const i of ports.keys()) await replicas.begin(i)
    return replicas
  }

  private constructor(
    log: RecordLog,
    authority: CertificateAuthority,
    ports: readonly number[],
    limits: { readonly connectionAgeMs: number; readonly drainMs: number },
  ) {
    this.log = log
    this.#authority = authority
    this.#limits = limits
    this.addresses = ports.map((port) => `127.0.0.1:${port}`)
  }

  async begin(i: number): Promise<void> {
    const metrics = createMetrics('broker')
    const deps = { log: this.log, authority: this.#authority, clock, logger: silent, metrics: brokerMetrics(metrics) }
    const broker = new Broker(deps, { ...DEFAULT_BROKER_CONFIG, clusterset: CLUSTERSET, advertise: this.addresses })
    const streams = new Set<ClusterId>()
    const server = await serveBroker({
      api: counting(broker, streams),
      tls: this.#authority.tls(),
      listen: { host: '127.0.0.1', port: 0 },
      clock,
      logger: silent,
      limits: { ...this.#limits, graceMs: 200, handshakesPerSecond: 1000 },
    })
    const front = new Front(server.address.port)
    await front.listen(Number(this.addresses[i]?.split(':')[1]))
    this.#running[i] = { broker, server, front, streams }
  }

  /** Stops a broker in good order: it closes its members' connections one by one. */
  async stop(i: number): Promise<void> {
    const running = this.#running[i]
    this.#running[i] = undefined
    await running?.server.close()
    await running?.front.close()
    running?.broker.close()
  }

  /** Breaks all connections at once, whatever is in flight on them. */
  async kill(i: number): Promise<void> {
    const running = this.#running[i]
    this.#running[i] = undefined
    await running?.front.close()
    await running?.server.close()
    running?.broker.close()
  }

  async join(id: string): Promise<Member> {
    const running = this.#running.find((one) => one !== undefined)
    if (running === undefined) throw new Error('no broker runs')
    const key = createKey()
    const token = createJoinToken({
      addresses: this.addresses,
      caPin: fingerprint(this.#authority.caCertificate),
      clusterset: CLUSTERSET,
      expiresAtMs: clock.now() + 600_000,
    })
    const secret = token.secret()
    await this.log.transact((tx) => {
      const { expiresAtMs } = token
      const row = { hash: hashTokenSecret(secret), createdAtMs: clock.now(), expiresAtMs, usesLeft: 1, uses: [] }
      tx.put('token', token.id, row)
    })
    const facts = { podCIDRs: [`10.${(this.#joined += 1)}.0.0/16`], serviceCIDRs: [], labels: {}, version: '0.1.0' }
    const request = { secret, cluster: id, csr: await createCsr(key), facts, nowMs: clock.now() }
    const { certificate } = await running.broker.join(request, '127.0.0.1')
    return { id: id as ClusterId, certificate, key }
  }

  client(identity: Identity, book?: AddressBook): BrokerClient {
    const client = connectBroker({
      addresses: this.addresses,
      ...(book === undefined ? {} : { book }),
      clusterset: CLUSTERSET,
      ca: [this.#authority.caCertificate],
      identity,
      clock,
      logger: silent,
    })
    this.#clients.push(client)
    return client
  }

  /** How many of the members have a watch at each broker. */
  shares(members: readonly Member[]): readonly number[] {
    return this.addresses.map((_, i) => members.filter(({ id }) => this.#running[i]?.streams.has(id)).length)
  }

  async #close(): Promise<void> {
    for (const client of this.#clients) client.close()
    await Promise.all(this.addresses.map((_, i) => this.kill(i)))
    await this.log.close()
  }
}

/** The address that members have; connections through it can be cut. */
class Front {
  readonly #sockets = new Set<Socket>()
  readonly #server: Server

  constructor(to: number) {
    this.#server = createServer((socket) => {
      const other = connect({ host: '127.0.0.1', port: to, noDelay: true })
      for (const [one, peer] of [[socket, other] as const, [other, socket] as const]) {
        this.#sockets.add(one)
        one.on('error', () => peer.destroy())
        one.on('close', () => {
          this.#sockets.delete(one)
          peer.destroy()
        })
        one.pipe(peer)
      }
    })
  }

  async listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve))
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }
}

function counting(broker: Broker, streams: Set<ClusterId>): Broker {
  const watch: Broker['watch'] = async function* (peer, request, signal) {
    streams.add(peer.cluster)
    try {
      yield* broker.watch(peer, request, signal)
    } finally {
      streams.delete(peer.cluster)
    }
  }
  return new Proxy(broker, {
    get: (target, name) => {
      if (name === 'watch') return watch
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}
