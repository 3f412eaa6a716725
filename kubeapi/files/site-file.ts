/** site.yaml: the paths and the properties of a site, with or without Kubernetes. */
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import {
  type OpenPort,
  formatAddressPort,
  overlaps,
  parseAddressPort,
  parseOpenPort,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { DEFAULT_ACTIVE_GATEWAYS, MAX_LANE } from '../../model/lanes/lanes.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { isMissing } from './atomic-write.ts'
import {
  choice,
  cidr,
  dnsLabel,
  dnsSubdomain,
  integer,
  ipAddress,
  list,
  text,
  textMap,
  textThat,
} from '../../model/kinds/kinds.ts'
import type { FieldPath } from '../../model/schemas/schemas.ts'
import { type FileProblem, InvalidFileError } from './problem-board.ts'
import { type SourceDocument, readSource, schemaProblems } from './yaml-source.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'

export interface SiteGateway {
  readonly node: string
  /** The only lane number that this node may serve. If absent, one that no other gateway has. */
  readonly lane?: number
  /**
   * The address at which other sites reach this gateway; absent behind NAT, or if the node's own address is reachable.
   */
  readonly publicAddress?: string
}

/** The API server of a site that is a Kubernetes cluster. */
export interface KubernetesAccess {
  /** Absolute path. If absent, the default rules apply; in a pod, its own ServiceAccount. */
  readonly kubeconfig?: string
  readonly context?: string
  /** The namespace of Sealane's own objects. */
  readonly namespace: string
}

export interface SiteConfig {
  /** Absolute path of the site file, and the folder it lies in. */
  readonly file: string
  readonly folder: string
  /** metadata.name: the cluster id unless `join --cluster-id` says otherwise. */
  readonly name: string
  /** Absolute paths. */
  readonly objects: string
  readonly state: string
  /** `<state>/identity`: keys and certificates, mode 0700. */
  readonly identity: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  /** Guarded namespaces (`default`, kube-*, …) whose services are imported anyway. */
  readonly allowedNamespaces: readonly string[]
  /** Absent on a site without Kubernetes, whose objects are files. */
  readonly kubernetes?: KubernetesAccess
  /** Gateways of a site without Kubernetes; in a Kubernetes cluster, Nodes have the label sealane.io/gateway. */
  readonly gateways: readonly SiteGateway[]
  /** The number of active gateways, among those without a lane number. */
  readonly activeGateways: number
  /** The age at which a gateway rotates its key; 0 turns rotation by age off. Undefined: the gateway's default. */
  readonly keyRotationDays?: number
  /** Ports of the nodes that pods of other clusters may connect to. */
  readonly openHostPorts: readonly OpenPort[]
  readonly dns: {
    /** `address:port` */
    readonly listen: readonly string[]
    /** `address:port`; the port is 53 if the file has none. */
    readonly upstreams: readonly string[]
    /** CIDRs of clients whose queries are forwarded to upstreams, besides pods, nodes and networks of the machine. */
    readonly forwardFor: readonly string[]
  }
}

const folderPath = textThat('a path', (value) => value !== '')
const listenAddress = textThat('address:port such as 10.42.0.1:53', (v) => isAddressPort(v))
const upstream = textThat('an address or address:port such as 192.0.2.53', (v) => isAddressPort(v, DNS_PORT))

const openHostPort = textThat('a protocol and a port such as tcp/9100 or udp/53', (v) => {
  return parseOpenPort(v) !== undefined
})

const DNS_PORT = 53
/** The default state folder of a node in a Kubernetes cluster, for lane keys. */
const NODE_STATE = '/var/lib/sealane'

const siteSchema = z.strictObject(
  {
    apiVersion: choice(['sealane.io/v1alpha1']),
    kind: choice(['Site']),
    metadata: z.strictObject(
      { name: dnsLabel(), labels: textMap().optional(), annotations: textMap().optional() },
      { error: 'a map' },
    ),
    spec: z.strictObject(
      {
        objects: folderPath.optional(),
        state: folderPath.optional(),
        kubernetes: z
          .strictObject(
            {
              kubeconfig: folderPath.optional(),
              context: text().optional(),
              namespace: dnsLabel().default(SYSTEM_NAMESPACE),
            },
            { error: 'a map' },
          )
          .optional(),
        podCIDRs: list(cidr()),
        serviceCIDRs: list(cidr()).default([]),
        labels: textMap().default({}),
        allowedNamespaces: list(dnsLabel()).default([]),
        gateways: list(
          z.strictObject(
            { node: dnsSubdomain(), lane: integer(0, MAX_LANE).optional(), publicAddress: ipAddress().optional() },
            { error: 'a map' },
          ),
        ).default([]),
        activeGateways: integer(1, MAX_LANE + 1).optional(),
        keyRotationDays: integer(0, 3650).optional(),
        openHostPorts: list(openHostPort).default([]),
        dns: z
          .strictObject(
            {
              listen: list(listenAddress).default([]),
              upstreams: list(upstream).default([]),
              forwardFor: list(cidr()).default([]),
            },
            { error: 'a map' },
          )
          .default({ listen: [], upstreams: [], forwardFor: [] }),
        description: text().optional(),
      },
      { error: 'a map' },
    ),
  },
  { error: 'a map' },
)

type SiteDocument = z.infer<typeof siteSchema>

/** Reads and validates a site file. Throws InvalidFileError with all problems and their lines. */
export async function readSiteFile(path: string): Promise<SiteConfig> {
  return parseSiteFile(path, await readText(path))
}

/** Like readSiteFile(), for text; `path` is used in messages and to resolve relative paths. */
export function parseSiteFile(path: string, content: string): SiteConfig {
  const source = readSource(path, content)
  if ('problems' in source) throw new InvalidFileError(source.problems)
  const documents = source.documents.filter(({ value }) => value !== undefined)
  const [document] = documents
  if (document === undefined || documents.length > 1) {
    throw invalid(path, `expected one document of kind Site, got ${documents.length}`)
  }
  const checked = siteSchema.safeParse(document.value)
  if (!checked.success) throw new InvalidFileError(schemaProblems(path, document, checked.error))
  const problems = [...crossChecks(checked.data)].map(({ at, reason }) => problemAt(path, document, at, reason))
  if (problems.length > 0) throw new InvalidFileError(problems)
  return toConfig(path, checked.data)
}

interface Complaint {
  readonly at: FieldPath
  readonly reason: string
}

/** Checks that involve several fields. */
function* crossChecks({ spec }: SiteDocument): Generator<Complaint> {
  if (spec.kubernetes !== undefined) {
    const elsewhere = { objects: 'its objects are in the API server', gateways: 'label Nodes with sealane.io/gateway' }
    for (const [name, where] of Object.entries(elsewhere)) {
      const stated = name === 'gateways' ? spec.gateways.length > 0 : spec.objects !== undefined
      if (stated) yield { at: ['spec', name], reason: `spec.${name}: not with spec.kubernetes: ${where}` }
    }
  }
  const isOpen = spec.kubernetes !== undefined || spec.gateways.some(({ lane }) => lane === undefined)
  if (!isOpen && spec.activeGateways !== undefined) {
    const reason = 'spec.activeGateways: only where a gateway of spec.gateways has no lane of its own'
    yield { at: ['spec', 'activeGateways'], reason }
  }
  if (spec.podCIDRs.length === 0)
    yield { at: ['spec', 'podCIDRs'], reason: 'spec.podCIDRs: expected at least one CIDR' }
  const ranges = [
    ...spec.podCIDRs.map((range, i) => ({ range, name: 'podCIDRs', i })),
    ...spec.serviceCIDRs.map((range, i) => ({ range, name: 'serviceCIDRs', i })),
  ]
  for (const [n, a] of ranges.entries()) {
    const b = ranges.slice(0, n).find((other) => overlaps(parsePrefix(other.range), parsePrefix(a.range)))
    if (b === undefined) continue
    yield {
      at: ['spec', a.name, a.i],
      reason: `spec.${a.name}[${a.i}]: ${a.range} overlaps spec.${b.name}[${b.i}], ${b.range}`,
    }
  }
  for (const name of ['lane', 'node'] as const) yield* repeatedGateways(spec, name)
}

/** Checks that each node has at most one lane, and that each lane number is used at most once. */
function* repeatedGateways({ gateways }: SiteDocument['spec'], name: 'lane' | 'node'): Generator<Complaint> {
  for (const [i, { [name]: value }] of gateways.entries()) {
    const first = gateways.findIndex((other) => other[name] === value)
    if (value === undefined || first === i) continue
    const reason = `spec.gateways[${i}].${name}: expected a ${name} of its own, spec.gateways[${first}] has ${name} ${value} already`
    yield { at: ['spec', 'gateways', i, name], reason }
  }
}

function toConfig(path: string, { metadata, spec }: SiteDocument): SiteConfig {
  const file = resolve(path)
  const folder = dirname(file)
  const state = resolve(folder, spec.state ?? (spec.kubernetes === undefined ? './state' : NODE_STATE))
  return {
    file,
    folder,
    name: metadata.name,
    objects: resolve(folder, spec.objects ?? './objects'),
    state,
    identity: resolve(state, 'identity'),
    podCIDRs: spec.podCIDRs,
    serviceCIDRs: spec.serviceCIDRs,
    labels: spec.labels,
    allowedNamespaces: spec.allowedNamespaces,
    ...(spec.kubernetes === undefined ? {} : { kubernetes: kubernetesAccess(folder, spec.kubernetes) }),
    gateways: spec.gateways.map(({ node, lane, publicAddress }) => ({
      node,
      ...(lane === undefined ? {} : { lane }),
      ...(publicAddress === undefined ? {} : { publicAddress }),
    })),
    activeGateways: spec.activeGateways ?? DEFAULT_ACTIVE_GATEWAYS,
    ...(spec.keyRotationDays === undefined ? {} : { keyRotationDays: spec.keyRotationDays }),
    openHostPorts: spec.openHostPorts.flatMap((text) => parseOpenPort(text) ?? []),
    dns: { listen: spec.dns.listen, upstreams: spec.dns.upstreams.map(withPort), forwardFor: spec.dns.forwardFor },
  }
}

function kubernetesAccess(
  folder: string,
  { kubeconfig, context, namespace }: NonNullable<SiteDocument['spec']['kubernetes']>,
): KubernetesAccess {
  return {
    namespace,
    ...(kubeconfig === undefined ? {} : { kubeconfig: resolve(folder, kubeconfig) }),
    ...(context === undefined ? {} : { context }),
  }
}

function isAddressPort(text: string, defaultPort?: number): boolean {
  try {
    parseAddressPort(text, '', defaultPort === undefined ? {} : { defaultPort })
    return true
  } catch {
    return false
  }
}

function withPort(value: string): string {
  return formatAddressPort(parseAddressPort(value, 'upstream', { defaultPort: DNS_PORT }))
}

function problemAt(file: string, document: SourceDocument, at: FieldPath, reason: string): FileProblem {
  return { file, ...document.place(at), reason }
}

function invalid(file: string, reason: string): InvalidFileError {
  return new InvalidFileError([{ file, line: 1, column: 1, reason }])
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    const reason = isMissing(error) ? 'no such file' : messageOf(error)
    throw invalid(path, reason)
  }
}
