/** Objects of a site that exports many services in a clusterset of many members, for bench/access.ts. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** What the measured calls go to: iperf3, and the programs of packets.ts. */
export const PROBE = { namespace: 'shop', name: 'probe', address: '10.42.1.10', iperf: 5201, port: 7000 } as const

export interface Size {
  readonly services: number
  readonly members: number
  readonly policies: number
}

/** YAML files are read one by one, so one file has many objects. */
const FILE_SERVICES = 200
const NAMESPACES = 20

/** Writes the objects into the folder of a site. Members have no gateways: only their addresses count. */
export async function writeManyServices(folder: string, { services, members, policies }: Size): Promise<void> {
  await write(folder, 'probe', exported(PROBE, PROBE.address, [PROBE.iperf, PROBE.port]))
  for (let from = 0; from < services; from += FILE_SERVICES) {
    const some = Array.from({ length: Math.min(FILE_SERVICES, services - from) }, (_, i) => from + i)
    await write(
      folder,
      `services-${from}`,
      some.flatMap((i) => exported(serviceOf(i), endpointOf(i), [8080])),
    )
  }
  await write(
    folder,
    'members',
    Array.from({ length: members }, (_, i) => memberOf(i)),
  )
  await write(
    folder,
    'policies',
    Array.from({ length: policies }, (_, i) =>
      offerOf(
        serviceOf(i),
        [i, i + 1].map((n) => `member-${n % members}`),
      ),
    ),
  )
}

/** Offers the probed service to some members only. */
export function probePolicy(clusters: readonly string[]): unknown {
  return offerOf(PROBE, clusters)
}

interface ServiceName {
  readonly namespace: string
  readonly name: string
}

function serviceOf(i: number): ServiceName {
  return { namespace: `team-${i % NAMESPACES}`, name: `service-${i}` }
}

function endpointOf(i: number): string {
  return `10.42.${100 + (i >> 8)}.${i & 0xff}`
}

function exported({ namespace, name }: ServiceName, address: string, numbers: readonly number[]): unknown[] {
  const protocols = ['TCP', 'UDP'] as const
  const ports = numbers.flatMap((port) =>
    protocols.map((protocol) => ({ name: `p${port}-${protocol.toLowerCase()}`, protocol, port })),
  )
  const metadata = { namespace, name }
  return [
    { apiVersion: 'v1', kind: 'Service', metadata, spec: { clusterIP: 'None', ports } },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { namespace, name: `${name}-1`, labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      ports,
      endpoints: [{ addresses: [address], hostname: 'pod', nodeName: 'w1', conditions: { ready: true } }],
    },
    { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata },
  ]
}

function memberOf(i: number): unknown {
  const id = `member-${i}`
  const networks = {
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['10.43.0.0/16'],
    globalCIDRs: [`244.${100 + i}.0.0/16`],
  }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: { id, index: 1000 + i, ...networks, labels: {} },
  }
}

function offerOf({ namespace, name }: ServiceName, clusters: readonly string[]): unknown {
  const spec = { targetRefs: [{ name }], from: [{ clusters }] }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata: { namespace, name }, spec }
}

/** JSON is YAML. */
async function write(folder: string, name: string, objects: readonly unknown[]): Promise<void> {
  await writeFile(join(folder, `${name}.yaml`), objects.map((object) => `${JSON.stringify(object)}\n`).join('---\n'))
}
