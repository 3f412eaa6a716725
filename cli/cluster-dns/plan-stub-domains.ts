/**
 * Plans for kube-dns: the ConfigMap kube-system/kube-dns, whose key stubDomains is JSON. GKE and NodeLocal DNSCache
 * read it too.
 */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import {
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type DnsObject,
  NO_CHANGE,
  configMapRef,
  findObject,
  problemPlan,
} from './dns-change.ts'

export const KUBE_DNS_MAP = configMapRef('kube-dns')
const KEY = 'stubDomains'
/** JSON has no comments, so this annotation marks the entry as Sealane's and contains its exact text. */
const ANNOTATION = 'sealane.io/stub-domain'
const EFFECT = { how: 'by itself', withinSeconds: 120 } as const

export function planStubDomains(
  present: readonly DnsObject[],
  { domain, forwardTo }: ClusterDnsOptions,
): ClusterDnsPlan {
  const found = findObject(present, KUBE_DNS_MAP)
  const entry = `${JSON.stringify(domain)}:${JSON.stringify([forwardTo])}`
  if (found?.metadata.annotations?.[ANNOTATION] === entry && found.data?.[KEY]?.includes(entry) === true)
    return NO_CHANGE
  const clean = found === undefined ? undefined : without(found)
  const text = clean?.data?.[KEY] ?? ''
  const domains = text.trim() === '' ? {} : parseDomains(text)
  if (domains === undefined) return unreadable()
  const taken = Object.keys(domains).find((name) => within(name, domain))
  if (taken !== undefined) return conflict(taken, domains[taken])
  const after = text.trim() === '' ? `{${entry}}` : insert(text, entry)
  return change(found, withEntry(clean, after, entry), `kube-dns forwards names below ${domain} to ${forwardTo}`)
}

export function planStubDomainsRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const found = findObject(present, KUBE_DNS_MAP)
  if (found?.metadata.annotations?.[ANNOTATION] === undefined) return NO_CHANGE
  const after = without(found)
  const ours = found.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  const empty = Object.keys(after.data ?? {}).length === 0
  return change(found, ours && empty ? undefined : after, 'the stub domain that Sealane added is removed')
}

/** Who has the domain, or a part of it, in the stub domains. Undefined if it is not among them. */
export function takesStubDomain(map: DnsObject | undefined, domain: string): 'sealane' | 'other' | undefined {
  const domains = parseDomains(map?.data?.[KEY] ?? '') ?? {}
  if (!Object.keys(domains).some((name) => within(name, domain))) return undefined
  const own = map?.metadata.annotations?.[ANNOTATION]
  return own !== undefined && map?.data?.[KEY]?.includes(own) === true ? 'sealane' : 'other'
}

function change(before: DnsObject | undefined, after: DnsObject | undefined, why: string): ClusterDnsPlan {
  const edit = { field: `data.${KEY}`, before: before?.data?.[KEY], after: after?.data?.[KEY] }
  const notes = ['On GKE Autopilot and with Cloud DNS for GKE this ConfigMap is not read.']
  return {
    changes: [{ object: KUBE_DNS_MAP, before, after, edit, why, effect: EFFECT }],
    notes: after === undefined || edit.after === undefined ? [] : notes,
    problems: [],
  }
}

function withEntry(clean: DnsObject | undefined, text: string, entry: string): DnsObject {
  const labels = { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE }
  const base: DnsObject = clean ?? {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: KUBE_DNS_MAP.name, namespace: 'kube-system', labels },
  }
  const annotations = { ...base.metadata.annotations, [ANNOTATION]: entry }
  return { ...base, metadata: { ...base.metadata, annotations }, data: { ...base.data, [KEY]: text } }
}

/** The object without Sealane's entry and annotation. Every other character of the JSON stays. */
function without(object: DnsObject): DnsObject {
  const { [ANNOTATION]: entry, ...annotations } = object.metadata.annotations ?? {}
  if (entry === undefined) return object
  const text = object.data?.[KEY] ?? ''
  const { [KEY]: _old, ...data } = object.data ?? {}
  const left = text === `{${entry}}` ? '' : cut(text, entry)
  const { annotations: _annotations, ...metadata } = object.metadata
  const { data: _data, ...rest } = object
  const kept = left === '' ? data : { ...data, [KEY]: left }
  return {
    ...rest,
    metadata: Object.keys(annotations).length === 0 ? metadata : { ...metadata, annotations },
    ...(Object.keys(kept).length === 0 ? {} : { data: kept }),
  }
}

/** Inserts the entry directly after the last one, so that it can be removed without a trace. */
function insert(text: string, entry: string): string {
  const head = text.slice(0, text.lastIndexOf('}')).trimEnd()
  const comma = head.endsWith('{') ? '' : ','
  return head + comma + entry + text.slice(head.length)
}

function cut(text: string, entry: string): string {
  for (const written of [`,${entry}`, `${entry},`, entry]) {
    const left = text.replace(written, () => '')
    if (left !== text && parseDomains(left) !== undefined) return left
  }
  // Another client has rewritten the JSON, so the entry is removed from the parsed value.
  const domains = parseDomains(text)
  const [name = ''] = Object.keys(parseDomains(`{${entry}}`) ?? {})
  if (domains?.[name] === undefined) return text
  const { [name]: _ours, ...rest } = domains
  return Object.keys(rest).length === 0 ? '' : JSON.stringify(rest)
}

function parseDomains(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

function within(name: string, domain: string): boolean {
  const zone = name.toLowerCase().replace(/\.$/, '')
  return zone === domain || zone.endsWith(`.${domain}`)
}

function unreadable(): ClusterDnsPlan {
  return problemPlan({
    kind: 'unreadable',
    object: KUBE_DNS_MAP,
    message: `ConfigMap kube-system/kube-dns, ${KEY}: expected a JSON object such as {"example.org": ["10.0.0.1"]}`,
    advice: ['Fix it: kube-dns cannot read it either. It was not changed.'],
  })
}

function conflict(name: string, servers: unknown): ClusterDnsPlan {
  return problemPlan({
    kind: 'conflict',
    object: KUBE_DNS_MAP,
    message: `ConfigMap kube-system/kube-dns, ${KEY}: ${name} is already forwarded to ${JSON.stringify(servers)}`,
    advice: ['Remove that first if nothing needs it. Sealane does not overwrite what it did not write.'],
  })
}
