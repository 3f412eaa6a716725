/**
 * Checks members: each number, block and certificate belongs to one member alone, and addresses lie in their ranges.
 */
import { X509Certificate } from 'node:crypto'
import {
  type Prefix,
  comparePrefixes,
  containsPrefix,
  formatPrefix,
  ipv4Among,
  overlaps,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { type ClusterId, isDnsLabel, recordKeyText } from '../../model/model.ts'
import { certificatesFromPem, keyFromPem, readCertificate } from '../../protocol/identity/identity.ts'
import { MAX_INDEX, clusterSpec, globalCIDRs } from '../addresses/addresses.ts'
import { statedKeys } from '../records/records.ts'
import { type MemberRow, SETTINGS_KEY, isLive } from '../store/store.ts'
import type { CheckContext, Findings } from './findings.ts'

export function checkMembers(context: CheckContext): void {
  const members = context.view.list('member')
  checkIndexes(context, members)
  checkBlocks(context, members)
  checkSerials(context, members)
  for (const { key, value } of members) checkMember(context, key, value)
}

type Members = readonly { readonly key: string; readonly value: MemberRow }[]

function checkIndexes({ findings }: CheckContext, members: Members): void {
  const owners = new Map<number, string>()
  for (const { key, value } of members) {
    const { index } = value
    if (index < 1 || index > MAX_INDEX)
      findings.add('StoreRowInvalid', `member ${key}`, `index ${index}: expected 1 to ${MAX_INDEX}`)
    const owner = owners.get(index)
    if (owner !== undefined)
      findings.add('StoreIndexTwice', `member ${key}`, `index ${index} also belongs to member ${owner}`)
    owners.set(index, owner ?? key)
  }
}

interface Block {
  readonly cluster: string
  readonly prefix: Prefix
}

function checkBlocks(context: CheckContext, members: Members): void {
  const { findings, view } = context
  const text = view.get('settings', SETTINGS_KEY)?.globalRange
  const range = text === undefined ? undefined : readPrefix(text)
  const blocks: Block[] = []
  for (const { key, value } of members) {
    for (const [cidr, block] of Object.entries(value.blocks)) {
      const subject = `member ${key}`
      const [pods, prefix] = [readPrefix(cidr), readPrefix(block)]
      if (pods === undefined || prefix === undefined || pods.length !== prefix.length) {
        findings.add('StoreRowInvalid', subject, `block ${block} of ${cidr}: expected a CIDR of the same size`)
        continue
      }
      if (range !== undefined && !containsPrefix(range, prefix))
        findings.add('StoreRowInvalid', subject, `block ${block}: expected a range inside ${text ?? ''}`)
      blocks.push({ cluster: key, prefix })
    }
  }
  checkApart(context, blocks)
}

/**
 * Two prefixes are either nested or disjoint. In the order of their addresses, one that overlaps follows the one that
 * contains it.
 */
function checkApart({ findings }: CheckContext, blocks: readonly Block[]): void {
  const sorted = [...blocks].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
  let last: Block | undefined
  for (const block of sorted) {
    if (last !== undefined && overlaps(last.prefix, block.prefix)) {
      const [one, other] = [formatPrefix(block.prefix), formatPrefix(last.prefix)]
      findings.add(
        'StoreAddressTwice',
        `member ${block.cluster}`,
        `block ${one}: it overlaps ${other} of ${last.cluster}`,
      )
      continue
    }
    last = block
  }
}

function checkSerials({ findings }: CheckContext, members: Members): void {
  const owners = new Map<string, string>()
  for (const { key, value } of members) {
    for (const { serial } of value.certificates) {
      const owner = owners.get(serial)
      if (owner !== undefined)
        findings.add('StoreRowInvalid', `member ${key}`, `certificate ${serial} also belongs to member ${owner}`)
      owners.set(serial, owner ?? key)
    }
  }
}

function checkMember({ findings, view }: CheckContext, id: string, row: MemberRow): void {
  const subject = `member ${id}`
  const invalid = (text: string): void => findings.add('StoreRowInvalid', subject, text)
  if (!isDnsLabel(id)) invalid('the id is not a DNS label')
  const { facts, allowedCIDRs = [], departure, departedAtMs } = row
  for (const cidr of [...facts.podCIDRs, ...facts.serviceCIDRs, ...(facts.neededCIDRs ?? []), ...allowedCIDRs])
    if (readPrefix(cidr) === undefined) invalid(`${cidr}: expected a CIDR`)
  if ((departure === undefined) !== (departedAtMs === undefined))
    invalid('expected both departure and departedAtMs, or neither')
  if (!isLive(row)) return
  if (ipv4Among(facts.podCIDRs.filter((cidr) => readPrefix(cidr) !== undefined)).length === 0)
    invalid('expected an IPv4 pod CIDR')
  const spec = clusterSpec(view, id)
  if (spec === undefined) {
    findings.add('StoreReferenceBroken', subject, 'the member has no Cluster record')
    return
  }
  const { podCIDRs } = spec
  if (spec.id !== id || spec.index !== row.index || podCIDRs.some((cidr) => !facts.podCIDRs.includes(cidr)))
    findings.add('StoreReferenceBroken', subject, 'the Cluster record has a different id, index or pod CIDRs')
  else if (globalCIDRs({ podCIDRs, translated: row.translated, blocks: row.blocks }).join() !== spec.globalCIDRs.join())
    findings.add(
      'StoreReferenceBroken',
      subject,
      'the Cluster record has global CIDRs that differ from the assigned ones',
    )
}

function readPrefix(text: string): Prefix | undefined {
  try {
    return parsePrefix(text)
  } catch {
    return undefined
  }
}

/** Checks public keys of gateways: each belongs to one member, and rows agree with Endpoints. */
export function checkKeys({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('publicKey')) {
    const subject = `publicKey ${key}`
    if (view.get('member', value.cluster) === undefined)
      findings.add('StoreReferenceBroken', subject, `cluster "${value.cluster}" does not exist`)
    for (const name of value.endpoints) {
      const body = view.get('record', endpointKey(value.cluster, name))?.body
      if (body?.kind !== 'Endpoint' || !statedKeys(body).includes(key))
        findings.add('StoreReferenceBroken', subject, `Endpoint ${value.cluster}/${name} does not have this key`)
    }
    if (value.endpoints.length === 0 && view.get('formerKeys', value.cluster)?.keys.includes(key) !== true)
      findings.add('StoreReferenceBroken', subject, 'no Endpoint has this key, and it is not a former key')
  }
  for (const { key, value } of view.list('formerKeys')) {
    for (const former of value.keys) {
      const row = view.get('publicKey', former)
      if (row?.cluster !== key || row.endpoints.length > 0)
        findings.add('StoreReferenceBroken', `formerKeys ${key}`, `${former} is in use or belongs to another member`)
    }
  }
  for (const { key, value } of view.list('record')) {
    if (value.body.kind !== 'Endpoint') continue
    const [cluster = '', , , name = ''] = key.split('/')
    for (const stated of statedKeys(value.body)) {
      const row = view.get('publicKey', stated)
      if (row?.cluster !== cluster || !row.endpoints.includes(name))
        findings.add('StoreReferenceBroken', `record ${key}`, `public key ${stated} is not registered for this member`)
    }
  }
}

function endpointKey(cluster: string, name: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'Endpoint', namespace: '', name })
}

// Checks the certificate authority: it is an authority, it is of this clusterset, it has not expired, and its key
// matches.

export interface AuthorityTexts {
  /** PEM. Undefined if the file does not exist. */
  readonly certificate: string | undefined
  readonly key: string | undefined
}

/** `clusterset` is the name in the settings. */
export function checkAuthority(
  findings: Findings,
  { certificate, key }: AuthorityTexts,
  { clusterset, nowMs }: { readonly clusterset: string | undefined; readonly nowMs: number },
): void {
  const wrong = (file: string, text: string): void => findings.add('StoreAuthorityInvalid', file, text)
  const der = certificate === undefined ? undefined : firstCertificate(certificate)
  if (der === undefined) {
    wrong('ca.crt', certificate === undefined ? 'the file is missing' : 'it contains no certificate in PEM form')
    return
  }
  const facts = readCertificate(der)
  if (!facts.isCa) wrong('ca.crt', 'it is not a CA certificate')
  if (clusterset !== undefined && facts.clusterset !== clusterset)
    wrong('ca.crt', `it belongs to clusterset "${facts.clusterset ?? ''}", not "${clusterset}"`)
  const untilText = new Date(facts.notAfterMs).toISOString()
  if (facts.notAfterMs <= nowMs) wrong('ca.crt', `it expired at ${untilText}`)
  if (key === undefined) {
    wrong('ca.key', 'the file is missing')
    return
  }
  try {
    if (!new X509Certificate(der).checkPrivateKey(keyFromPem(key))) wrong('ca.key', 'it does not belong to ca.crt')
  } catch {
    // The library's error for a key that it cannot read may contain a part of the key.
    wrong('ca.key', 'it contains no private key in PEM form')
  }
}

function firstCertificate(text: string): Uint8Array | undefined {
  try {
    const der = certificatesFromPem(text)[0]
    if (der === undefined) return undefined
    readCertificate(der)
    return der
  } catch {
    return undefined
  }
}
