/**
 * The shapes of probe results: the kernel state of a machine, queries to DNS servers, calls to brokers. Each kind has
 * its shape here, and a function that names an item.
 */
import { z } from 'zod'

const text = z.string().max(32_768)
const count = z.number().int().nonnegative()
const amount = z.number().nonnegative()
const texts = z.array(text).max(10_000)
/** A port range, both ends included. */
const ports = z.array(z.tuple([count, count])).max(1000)

/**
 * What a rule matches. An absent field matches everything. `other` means that the rule also has conditions that are not
 * listed, so that it is unknown whether it matches.
 */
const packetMatch = z.looseObject({
  inDevice: text.optional(),
  outDevice: text.optional(),
  protocol: text.optional(),
  dports: ports.optional(),
  sports: ports.optional(),
  /** Connection states such as `established`. */
  states: texts.optional(),
  other: z.boolean(),
})
export type PacketMatch = z.infer<typeof packetMatch>

const firewallRule = z.looseObject({
  match: packetMatch,
  action: z.enum(['accept', 'drop', 'reject', 'jump', 'goto', 'return', 'none']),
  /** The target chain of `jump` and `goto`. */
  to: text.optional(),
})
export type FirewallRule = z.infer<typeof firewallRule>

const firewallChain = z.looseObject({
  family: text,
  table: text,
  name: text,
  /** Set for base chains. */
  hook: text.optional(),
  priority: z.number().optional(),
  policy: z.enum(['accept', 'drop']).optional(),
  rules: z.array(firewallRule).max(2000),
  /** The number of further rules, which are left out. */
  omitted: count,
})
export type FirewallChain = z.infer<typeof firewallChain>

const share = z.looseObject({ used: amount, limit: amount })

const host = z.looseObject({
  /** The name of the Node, or of the machine. */
  node: text,
  devices: z.array(z.looseObject({ name: text, addresses: texts })).max(5000),
  /** Values by name. For example, `net.ipv4.ip_forward` is `1`. */
  sysctls: z.record(z.string(), text),
  /** Settings of Sealane's devices that differ from what it sets. Absent if an earlier release probed. */
  deviceSettings: z
    .array(z.looseObject({ name: text, value: text, found: text }))
    .max(1000)
    .optional(),
  /** Absent if it could not be read. */
  firewall: z
    .looseObject({
      /** Family and name of each table, such as `ip sealane_gateway`. */
      tables: texts,
      /** Chains of other programs that can drop packets. */
      chains: z.array(firewallChain).max(500),
    })
    .optional(),
  /** Prefixes of the routes in Sealane's tables, by table number. Absent if they could not be read. */
  routes: z.record(z.string(), texts).optional(),
  /** Absent if an earlier release probed. `release` is as `uname -r` prints it. */
  kernel: z.looseObject({ release: text, avx2: z.boolean() }).optional(),
  /** Backends that do not reach themselves, and the command that mends it. Absent if an earlier release probed. */
  cutOffFromSelf: z
    .array(z.looseObject({ address: text, command: text }))
    .max(10_000)
    .optional(),
  connections: share.optional(),
  disks: z.array(z.looseObject({ path: text, ...share.shape })).max(50),
})
export type HostReport = z.infer<typeof host>

const dnsAnswer = z.looseObject({
  server: text,
  /**
   * ours: a server of Sealane.
   * upstream: the server that it forwards other names to.
   * cluster: the server that pods ask.
   */
  role: z.enum(['ours', 'upstream', 'cluster']),
  name: text,
  /** NOERROR and the other codes of RFC 1035, `timeout` or `unreachable`. */
  result: text,
  /** The text of the error, if there is one. */
  message: text.optional(),
  ms: amount,
})
export type DnsAnswer = z.infer<typeof dnsAnswer>

const brokerCall = z.looseObject({
  address: text,
  /** How far the connection got. */
  stage: z.enum(['nothing', 'tcp', 'tls']),
  /** The reason code of a failure, if it has one. */
  reason: text.optional(),
  message: text.optional(),
  ms: amount,
})
export type BrokerCall = z.infer<typeof brokerCall>

const identity = z.looseObject({
  /** RFC 3339 validity of the certificate. */
  begins: text,
  ends: text,
  /** This member's address as the broker saw it during the join. */
  observedAddress: text.optional(),
})
export type IdentityReport = z.infer<typeof identity>

/** Settings of the site file or the installation. */
const settings = z.looseObject({
  /** Where its own DNS server listens, and the servers it forwards to. */
  listen: texts,
  upstreams: texts,
})
export type Settings = z.infer<typeof settings>

/** A CustomResourceDefinition that Sealane needs, compared with that of the running command. */
const definition = z.looseObject({
  name: text,
  /** For example, `revision 7`. */
  found: text,
  expected: text,
  isOlder: z.boolean(),
})
export type Definition = z.infer<typeof definition>

/** Another product that manages the objects of multicluster.x-k8s.io. */
const otherProduct = z.looseObject({
  name: text,
  /** The CustomResourceDefinition that reveals the product. */
  crd: text,
})
export type OtherProduct = z.infer<typeof otherProduct>

/** The settings of a resolver, as its file has them (resolv.conf(5)). */
const resolver = z.looseObject({
  /** machine: one that asks a DNS server of its site. pod: one of Sealane's own, with the settings that pods get. */
  place: z.enum(['machine', 'pod']),
  name: text,
  text,
})
export type ResolverReport = z.infer<typeof resolver>

export const PROBE_SHAPES = {
  host,
  'dns-answer': dnsAnswer,
  'broker-call': brokerCall,
  identity,
  settings,
  resolver,
  definition,
  'other-product': otherProduct,
} as const satisfies Readonly<Record<string, z.ZodType>>

export type ProbeKind = keyof typeof PROBE_SHAPES

export const PROBE_KINDS = Object.keys(PROBE_SHAPES) as readonly ProbeKind[]

export type ProbeItems = { readonly [K in ProbeKind]: z.infer<(typeof PROBE_SHAPES)[K]> }

/** Names the subject of an item. The later of two items with the same name counts. */
export const PROBE_NAMES: { readonly [K in ProbeKind]: (item: ProbeItems[K]) => string } = {
  host: ({ node }) => node,
  'dns-answer': ({ server, name }) => `${server} ${name}`,
  'broker-call': ({ address }) => address,
  identity: () => 'self',
  settings: () => 'self',
  resolver: ({ place, name }) => `${place} ${name}`,
  definition: ({ name }) => name,
  'other-product': ({ name }) => name,
}
