/** A site as the caller of a run: calls come from this machine, in this process, and its own DNS server is asked. */
import { networkInterfaces } from 'node:os'
import { podFamilies, prefixPairs, toGlobalText } from '../../../model/addresses/addresses.ts'
import type { Cluster } from '../../../model/model.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { callProbe } from './probe-client.ts'
import type { ProbeCall } from './probe-wire.ts'
import type { ProbeCaller } from './run-verify.ts'

export interface SiteCallerInit {
  readonly id: string
  /** The site's own Cluster. Undefined until its agent has written it. */
  readonly cluster: Cluster | undefined
  /** `spec.dns.listen` of the site file. */
  readonly dnsListen: readonly string[]
  readonly namespace: string
  readonly run: string
  readonly clock: Clock
  readonly timeoutMs: number
  readonly gateways?: ProbeCaller['gateways']
  /** The addresses of this machine. */
  readonly addresses?: readonly string[]
}

const LOOK_EVERY_MS = 500

export function siteCaller(init: SiteCallerInit): ProbeCaller {
  const { id, cluster, run, clock, namespace, timeoutMs, addresses = machineAddresses() } = init
  const dns = dnsServerOf(init.dnsListen)
  const call: ProbeCaller['call'] = (_from, one: ProbeCall, signal) => callProbe(one, { run, clock, signal }) as never
  return {
    ...{ id, kind: 'site', call },
    families: cluster === undefined ? ['IPv4'] : podFamilies(cluster.spec),
    ...(dns === undefined ? {} : { dns }),
    ...(init.gateways === undefined ? {} : { gateways: init.gateways }),
    imported: async (service, _exporter, signal) => {
      const deadline = clock.monotonic() + timeoutMs
      const name = `${service}.${namespace}.svc.clusterset.local`
      for (;;) {
        const result = await callProbe(
          { op: 'resolve', name, ...(dns === undefined ? {} : { dns }) },
          { run, clock, signal },
        )
        if (result.ok && result.value.addresses.length > 0) return result.value.addresses
        if (clock.monotonic() >= deadline) return undefined
        await clock.sleep(LOOK_EVERY_MS, signal)
      }
    },
    sources: (family) => {
      if (cluster === undefined) return undefined
      try {
        const pairs = prefixPairs(cluster.spec)
        return addresses.filter((one) => one.includes(':') === (family === 6)).map((one) => toGlobalText(pairs, one))
      } catch {
        return undefined
      }
    },
  }
}

/** The address to ask: loopback for a server that listens on all addresses. */
export function dnsServerOf([first]: readonly string[]): string | undefined {
  return first?.replace(/^0\.0\.0\.0:/, '127.0.0.1:').replace(/^\[::\]:/, '[::1]:')
}

function machineAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address))
}
