/**
 * What is found by looking closer than objects and status pages do: at the kernel of a machine, at servers that were
 * asked and brokers that were called. Each kind has its shape here, and what names one of its items.
 */
import { z } from 'zod'

const text = z.string().max(32_768)
const count = z.number().int().nonnegative()
const amount = z.number().nonnegative()
const texts = z.array(text).max(10_000)
/** A port range, both ends included. */
const ports = z.array(z.tuple([count, count])).max(1000)

/**
 * What a rule asks of a packet. What is absent is not asked; `other` says that it asks for something else beside, so that
 * nobody can say whether the packet is meant.
 */
const packetMatch = z.looseObject({
  inDevice: text.optional(),
  outDevice: text.optional(),
  protocol: text.optional(),
  dports: ports.optional(),
  sports: ports.optional(),
  /** Connection states: `established`. */
  states: texts.optional(),
  other: z.boolean(),
})
export type PacketMatch = z.infer<typeof packetMatch>

const firewallRule = z.looseObject({
  match: packetMatch,
  action: z.enum(['accept', 'drop', 'reject', 'jump', 'goto', 'return', 'none']),
  /** The chain of `jump` and `goto`. */
  to: text.optional(),
})
export type FirewallRule = z.infer<typeof firewallRule>

const firewallChain = z.looseObject({
  family: text,
  table: text,
  name: text,
  /** Of a base chain. */
  hook: text.optional(),
  priority: z.number().optional(),
  policy: z.enum(['accept', 'drop']).optional(),
  rules: z.array(firewallRule).max(2000),
  /** Rules behind the last of them that are not told. */
  omitted: count,
})
export type FirewallChain = z.infer<typeof firewallChain>

const share = z.looseObject({ used: amount, limit: amount })

const host = z.looseObject({
  /** Of its Node, or of the machine. */
  node: text,
  devices: z.array(z.looseObject({ name: text, addresses: texts })).max(5000),
  /** `net.ipv4.ip_forward`: `1`. */
  sysctls: z.record(z.string(), text),
  /** Settings of devices of Sealane that are not what it sets; absent: an earlier release looked. */
  deviceSettings: z
    .array(z.looseObject({ name: text, value: text, found: text }))
    .max(1000)
    .optional(),
  /** Absent: it could not be read. */
  firewall: z
    .looseObject({
      /** `ip sealane_gateway` */
      tables: texts,
      /** Of others than Sealane, where they can drop. */
      chains: z.array(firewallChain).max(500),
    })
    .optional(),
  /** Prefixes of the routes in tables of ours, by number of the table; absent: they could not be read. */
  routes: z.record(z.string(), texts).optional(),
  connections: share.optional(),
  disks: z.array(z.looseObject({ path: text, ...share.shape })).max(50),
})
export type HostReport = z.infer<typeof host>

const dnsAnswer = z.looseObject({
  server: text,
  /** ours: a server of Sealane. upstream: where it hands on what is not its own. cluster: where pods ask. */
  role: z.enum(['ours', 'upstream', 'cluster']),
  name: text,
  /** NOERROR and the others of RFC 1035; timeout; unreachable. */
  result: text,
  /** The error in words, where there is one. */
  message: text.optional(),
  ms: amount,
})
export type DnsAnswer = z.infer<typeof dnsAnswer>

const brokerCall = z.looseObject({
  address: text,
  /** What was reached. */
  stage: z.enum(['nothing', 'tcp', 'tls']),
  /** Of a failure, where it has a name. */
  reason: text.optional(),
  message: text.optional(),
  ms: amount,
})
export type BrokerCall = z.infer<typeof brokerCall>

const identity = z.looseObject({
  /** RFC 3339: of the certificate. */
  begins: text,
  ends: text,
  /** This member's address as the broker saw it when joining. */
  observedAddress: text.optional(),
})
export type IdentityReport = z.infer<typeof identity>

/** What the site file or the installation was told, beside what is found. */
const settings = z.looseObject({
  /** Where its own DNS listens, and whom that asks. */
  listen: texts,
  upstreams: texts,
})
export type Settings = z.infer<typeof settings>

/** A CustomResourceDefinition that Sealane needs, beside what the command that looks has of it. */
const definition = z.looseObject({
  name: text,
  /** `revision 7` */
  found: text,
  expected: text,
  isOlder: z.boolean(),
})
export type Definition = z.infer<typeof definition>

/** Something that takes the objects of multicluster.x-k8s.io for its own. */
const otherProduct = z.looseObject({
  name: text,
  /** By which it was recognized. */
  crd: text,
})
export type OtherProduct = z.infer<typeof otherProduct>

export const PROBE_SHAPES = {
  host,
  'dns-answer': dnsAnswer,
  'broker-call': brokerCall,
  identity,
  settings,
  definition,
  'other-product': otherProduct,
} as const satisfies Readonly<Record<string, z.ZodType>>

export type ProbeKind = keyof typeof PROBE_SHAPES

export const PROBE_KINDS = Object.keys(PROBE_SHAPES) as readonly ProbeKind[]

export type ProbeItems = { readonly [K in ProbeKind]: z.infer<(typeof PROBE_SHAPES)[K]> }

/** What an item is about: of two of one name the later counts. */
export const PROBE_NAMES: { readonly [K in ProbeKind]: (item: ProbeItems[K]) => string } = {
  host: ({ node }) => node,
  'dns-answer': ({ server, name }) => `${server} ${name}`,
  'broker-call': ({ address }) => address,
  identity: () => 'self',
  settings: () => 'self',
  definition: ({ name }) => name,
  'other-product': ({ name }) => name,
}
