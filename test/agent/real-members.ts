/** A broker and members over TLS on loopback. Only the Kubernetes side is in memory. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type AgentConfig, agentConfig } from '../../agent/loop/config.ts'
import { runAgent } from '../../agent/main.ts'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { runBroker } from '../../broker/main.ts'
import { openBrokerStore } from '../support/broker-store.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { parseClusterId } from '../../model/ids.ts'
import type { JoinLook, JoinResponse } from '../../protocol/broker-api.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { readMemberIdentity, writeMemberIdentity } from '../../protocol/membership/member-files.ts'
import { certificatesFromPem, readCertificate } from '../../protocol/identity/certificates.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { connectBroker } from '../../protocol/transport/grpc-client.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { clusterObject, membershipObject } from '../support/objects/cluster-objects.ts'
import { showImport, showSlice } from './site.ts'

export const clock = new SystemClock()
export const NEVER = new AbortController().signal

interface Running {
  stop(): Promise<void>
}

function run(work: (signal: AbortSignal) => Promise<void>): Running {
  const stop = new AbortController()
  const done = work(stop.signal)
  return {
    async stop() {
      stop.abort()
      await done
    },
  }
}

export async function startBroker(
  directory: string,
  port: number,
  change: Partial<BrokerConfig> = {},
): Promise<Running & { port: number }> {
  let address: { port: number } | undefined
  const deps = { clock, logger: new CapturingLogger(), metrics: createMetrics('broker'), status: new StatusBoard() }
  const config = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir: directory,
    listen: `127.0.0.1:${port}`,
    advertise: ['127.0.0.1:7443'],
    ...change,
  }
  const broker = run((signal) => runBroker({ ...deps, onListening: (at) => (address = at) }, config, signal))
  await eventually(() => address !== undefined)
  return { ...broker, port: address?.port ?? 0 }
}

export class Member {
  readonly api: MemoryApi
  readonly status = new StatusBoard()
  readonly logger = new CapturingLogger()
  readonly id: string
  readonly #directory: string
  #running: Running | undefined

  constructor(id: string, directory: string, api = new MemoryApi()) {
    this.id = id
    this.api = api
    this.#directory = join(directory, id)
  }

  /** Returns the effects that a join would have, without joining. */
  async look(brokerDirectory: string, port: number): Promise<JoinLook> {
    const { client, request } = await this.#ask(brokerDirectory, port)
    const found = await client.lookAtJoin(request, NEVER)
    client.close()
    return found
  }

  async join(brokerDirectory: string, port: number): Promise<JoinResponse> {
    const { client, request, key, addresses } = await this.#ask(brokerDirectory, port)
    const answer = await client.join(request, NEVER)
    client.close()
    await writeMemberIdentity(join(this.#directory, 'identity'), {
      cluster: parseClusterId(this.id),
      clusterset: answer.clusterset,
      brokerAddresses: addresses,
      observedAddress: answer.observedAddress,
      key,
      certificate: answer.certificate,
      caBundle: answer.caBundle,
    })
    const { podCIDRs, serviceCIDRs, labels } = request.facts
    const { clusterIndex: index, globalCIDRs } = answer
    await this.api.apply(clusterObject({ id: this.id, index, podCIDRs, serviceCIDRs, labels, globalCIDRs }))
    const { clusterset, globalRange, clustersetIpRange } = answer
    await this.api.apply(membershipObject({ clusterId: this.id, clusterset, globalRange, clustersetIpRange }))
    this.api.put(namespaceObject('shop'))
    return answer
  }

  /** Returns a client with the broker's CA, and a join request with a new token. */
  async #ask(brokerDirectory: string, port: number) {
    const tokens = await openBrokerStore(brokerDirectory, clock)
    const token = parseJoinToken((await tokens.create({})).text, clock.now())
    await tokens.close()
    const [ca] = certificatesFromPem(await readFile(join(brokerDirectory, 'ca.crt'), 'utf8'))
    const addresses = [`127.0.0.1:${port}`]
    const client = connectBroker({ addresses, clusterset: 'default', ca: [ca!], clock, logger: this.logger })
    const key = createKey()
    const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: '0' }
    const cluster = parseClusterId(this.id)
    const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts, nowMs: clock.now() }
    return { client, request, key, addresses }
  }

  start(change: Partial<AgentConfig> = {}): void {
    const deps = { api: this.api, clock, logger: this.logger, metrics: createMetrics('agent'), status: this.status }
    this.#running = run((signal) => runAgent(deps, agentConfig(this.#directory, change), signal))
  }

  async stop(): Promise<void> {
    await this.#running?.stop()
  }

  /** Returns the serial number of the certificate on disk. */
  async serial(): Promise<string> {
    const identity = await readMemberIdentity(join(this.#directory, 'identity'))
    return identity === undefined ? 'none' : readCertificate(identity.certificate).serial
  }

  shown(): string[] {
    const imports = this.api.cache('ServiceImport').list().map(showImport)
    const slices = this.api.cache('EndpointSlice').list()
    return [
      ...imports,
      ...slices.filter(({ metadata }) => metadata.name.startsWith('web-') && metadata.name.length > 20).map(showSlice),
    ]
  }
}
