/**
 * A member's identity on disk, in `<state>/identity` (mode 0700). `sealane join` and the renewal write it, and the
 * agent reads it. The private key has mode 0600 and never leaves this folder.
 *   cluster.key   PKCS #8 PEM      cluster.crt  PEM      ca.crt  PEM, one or more      broker.json  see BrokerFile
 *   access.json   see KeptAccess: what the Membership says about access, from which a lost one is made again
 */
import type { KeyObject } from 'node:crypto'
import { chmod, mkdir, readFile, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type AccessOfMember, type ClusterId, parseClusterId } from '../../model/model.ts'
import { replaceFile } from '../../runtime/runtime.ts'
import { brokerAddresses, formatBrokerAddress, parseBrokerAddress } from '../protocol.ts'
import { certificateToPem, certificatesFromPem, keyFromPem, keyToPem } from '../identity/identity.ts'

export interface MemberIdentity {
  readonly cluster: ClusterId
  readonly clusterset: string
  /** Broker addresses from the join token. */
  readonly brokerAddresses: readonly string[]
  /** Further addresses that a broker named and to which a connection has succeeded. Absent if there are none. */
  readonly learnedAddresses?: readonly string[]
  /** Address of this site as the broker saw it during the join. */
  readonly observedAddress: string
  /**
   * The broker has found no sign that `observedAddress` belongs to a device in between. Absent if an earlier release
   * wrote the identity.
   */
  readonly observedCounts?: boolean
  /** Ranges of the clusterset, from the join response. Absent if an earlier release wrote the identity. */
  readonly ranges?: MemberRanges
  readonly key: KeyObject
  /** In DER. */
  readonly certificate: Uint8Array
  readonly caBundle: readonly Uint8Array[]
  /**
   * Fingerprint of the authority under which the cluster joined. Set if the bundle now begins with another one, so that
   * the replica stays valid when authorities change.
   */
  readonly firstAuthority?: string
}

export interface MemberRanges {
  readonly globalRange: string
  readonly clustersetIpRange: string
}

interface BrokerFile extends Partial<MemberRanges> {
  readonly cluster: string
  readonly clusterset: string
  readonly addresses: readonly string[]
  readonly learned?: readonly string[]
  readonly observedAddress: string
  readonly observedCounts?: boolean
  readonly firstAuthority?: string
}

export class IdentityFileError extends Error {
  constructor(file: string, problem: string, options?: { cause?: unknown }) {
    super(`${file}: ${problem}`, options)
    this.name = 'IdentityFileError'
  }
}

/**
 * The parts of an identity by file name, in the order in which they are written. The authorities are written before the
 * certificate, because the broker takes the use of a new certificate as proof that the member has the new authorities.
 */
export const IDENTITY_PARTS = ['cluster.key', 'ca.crt', 'cluster.crt', 'broker.json'] as const
export type IdentityPart = (typeof IDENTITY_PARTS)[number]

/** Returns undefined if this site has not joined. Throws IdentityFileError with the name of the file. */
export async function readMemberIdentity(directory: string): Promise<MemberIdentity | undefined> {
  const parts: Partial<Record<IdentityPart, string>> = {}
  for (const part of IDENTITY_PARTS) {
    const text = await readIfThere(join(directory, part))
    if (text !== undefined) parts[part] = text
  }
  if (parts['cluster.key'] !== undefined && parts['broker.json'] !== undefined) {
    await checkPrivate(join(directory, 'cluster.key'))
  }
  return decodeMemberIdentity(parts, (part) => join(directory, part))
}

/**
 * Returns undefined without broker.json, which is written last. `place` returns the name of a part for messages. Throws
 * IdentityFileError.
 */
export function decodeMemberIdentity(
  parts: Readonly<Partial<Record<IdentityPart, string>>>,
  place: (part: IdentityPart) => string,
): MemberIdentity | undefined {
  const broker = parts['broker.json']
  if (broker === undefined) return undefined
  const facts = parseBrokerFile(place('broker.json'), broker)
  const decode = <T>(part: IdentityPart, parse: (text: string) => T): T => decodePart(place(part), parts[part], parse)
  return {
    cluster: parseClusterId(facts.cluster),
    clusterset: facts.clusterset,
    brokerAddresses: facts.addresses,
    ...learnedOf(facts),
    observedAddress: facts.observedAddress,
    ...(typeof facts.observedCounts === 'boolean' ? { observedCounts: facts.observedCounts } : {}),
    ...(isFingerprint(facts.firstAuthority) ? { firstAuthority: facts.firstAuthority } : {}),
    ...rangesOf(facts),
    key: decode('cluster.key', keyFromPem),
    certificate: first(place('cluster.crt'), decode('cluster.crt', certificatesFromPem)),
    caBundle: decode('ca.crt', certificatesFromPem),
  }
}

/** Returns PEM and JSON texts. They contain the private key, so store them only in a protected place. */
export function encodeMemberIdentity(identity: MemberIdentity): Record<IdentityPart, string> {
  const facts: BrokerFile = {
    cluster: identity.cluster,
    clusterset: identity.clusterset,
    addresses: identity.brokerAddresses.map((text) => formatBrokerAddress(parseBrokerAddress(text))),
    ...((identity.learnedAddresses ?? []).length === 0 ? {} : { learned: identity.learnedAddresses ?? [] }),
    observedAddress: identity.observedAddress,
    ...(identity.observedCounts === undefined ? {} : { observedCounts: identity.observedCounts }),
    ...(identity.firstAuthority === undefined ? {} : { firstAuthority: identity.firstAuthority }),
    ...identity.ranges,
  }
  return {
    'cluster.key': keyToPem(identity.key),
    'cluster.crt': certificateToPem(identity.certificate),
    'ca.crt': identity.caBundle.map((der) => certificateToPem(der)).join(''),
    'broker.json': `${JSON.stringify(facts, undefined, 2)}\n`,
  }
}

/** Writes all parts. broker.json comes last; until it exists, the site has not joined. Throws IdentityFileError. */
export async function writeMemberIdentity(directory: string, identity: MemberIdentity): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    throw new IdentityFileError(directory, (error as Error).message, { cause: error })
  })
  await chmod(directory, 0o700)
  const parts = encodeMemberIdentity(identity)
  // A cluster that joins again may have an identity. The new key beside the old certificate would be no identity.
  const known = await readIfThere(join(directory, 'cluster.key'))
  if (known !== parts['cluster.key']) await removePart(join(directory, 'broker.json'))
  for (const part of IDENTITY_PARTS) await writePart(join(directory, part), parts[part])
}

/**
 * Removes the whole identity after leaving. `mark`: for a site of several hubs; it is called with the name of each part before
 * that is removed, also of one that is missing already. They take what is missing without a mark, and a folder that vanishes,
 * for a fault of the disk. Throws what `mark` throws, and the errors of the system.
 */
export async function removeMemberIdentity(directory: string, mark?: (name: string) => Promise<void>): Promise<void> {
  if (mark === undefined) return rm(directory, { recursive: true, force: true })
  // Until broker.json is gone, the site has joined.
  for (const name of ['broker.json', ...IDENTITY_PARTS.filter((part) => part !== 'broker.json'), ACCESS_PART]) {
    await mark(name)
    await rm(join(directory, name), { force: true })
  }
  const names = await readdir(directory).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  for (const name of names) await rm(join(directory, name), { recursive: true, force: true })
}

function parseBrokerFile(file: string, text: string): BrokerFile {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw new IdentityFileError(file, 'not JSON: join again, or restore it from a backup', { cause })
  }
  const facts = value as Partial<BrokerFile> | null
  const isText = (part: unknown): part is string => typeof part === 'string' && part !== ''
  if (!isText(facts?.cluster) || !isText(facts.clusterset) || !isText(facts.observedAddress)) {
    throw new IdentityFileError(file, 'expected cluster, clusterset, observedAddress and addresses')
  }
  if (!Array.isArray(facts.addresses) || facts.addresses.length === 0 || !facts.addresses.every(isText)) {
    throw new IdentityFileError(file, 'addresses: expected at least one host:port')
  }
  return facts as BrokerFile
}

/** Invalid learned addresses are ignored, because the member still has its own. */
function learnedOf({ learned }: BrokerFile): Pick<MemberIdentity, 'learnedAddresses'> {
  const texts = brokerAddresses(Array.isArray(learned) ? learned : []).map(formatBrokerAddress)
  return texts.length === 0 ? {} : { learnedAddresses: texts }
}

function isFingerprint(text: unknown): text is string {
  return typeof text === 'string' && /^[0-9a-f]{64}$/.test(text)
}

function rangesOf({ globalRange, clustersetIpRange }: BrokerFile): { readonly ranges?: MemberRanges } {
  const isRange = (text: unknown): text is string => typeof text === 'string' && text !== ''
  return isRange(globalRange) && isRange(clustersetIpRange) ? { ranges: { globalRange, clustersetIpRange } } : {}
}

async function checkPrivate(file: string): Promise<void> {
  if (((await stat(file)).mode & 0o077) === 0) return
  throw new IdentityFileError(
    file,
    'other users can read it; set its mode to 0600, and join again if others had access',
  )
}

function decodePart<T>(file: string, text: string | undefined, parse: (text: string) => T): T {
  if (text === undefined) throw new IdentityFileError(file, 'missing: join again, or restore it from a backup')
  try {
    return parse(text)
  } catch (cause) {
    throw new IdentityFileError(file, (cause as Error).message, { cause })
  }
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new IdentityFileError(file, `cannot be read: ${(cause as Error).message}`, { cause })
  }
}

function first(file: string, certificates: readonly Uint8Array[]): Uint8Array {
  const certificate = certificates[0]
  if (certificate === undefined) throw new IdentityFileError(file, 'it has no certificate')
  return certificate
}

async function removePart(file: string): Promise<void> {
  try {
    await rm(file, { force: true })
  } catch (cause) {
    throw new IdentityFileError(file, `cannot be removed: ${(cause as Error).message}`, { cause })
  }
}

/** Writes atomically: after a crash the file has its old or its new content. */
async function writePart(file: string, text: string): Promise<void> {
  try {
    await replaceFile(file, text)
  } catch (cause) {
    throw new IdentityFileError(file, `cannot be written: ${(cause as Error).message}`, { cause })
  }
}

// The place where a member stores its identity: a folder on disk, or a Secret of a Kubernetes cluster
// (protocol/membership/secret-identity.ts).

export interface IdentityStore {
  /** Name of the place for messages: the folder, or the namespace and name of the Secret. */
  readonly place: string
  /** Returns undefined if the cluster has not joined. Throws IdentityFileError if the stored identity is invalid. */
  read(): Promise<MemberIdentity | undefined>
  /** Writes all parts. Throws IdentityFileError. */
  write(identity: MemberIdentity): Promise<void>
  remove(): Promise<void>
  /** What the Membership said about access. Undefined if it is not known. Throws IdentityFileError. */
  access(): Promise<KeptAccess | undefined>
  /** Keeps it beside the identity. Does nothing if the cluster has not joined. Throws IdentityFileError. */
  keepAccess(access: KeptAccess): Promise<void>
}

/** A file of its own: the renewal writes the identity, and neither writer may put back what the other has replaced. */
export const ACCESS_PART = 'access.json'

/** What the Membership of a member of this clusterset says about access. */
export interface KeptAccess extends AccessOfMember {
  readonly clusterset: string
}

export function encodeAccess({ clusterset, exposure, accessDefault }: KeptAccess): string {
  return `${JSON.stringify({ clusterset, exposure, accessDefault })}\n`
}

/** Undefined for a text that cannot be read: the member then counts as a new one, which opens less. */
export function decodeAccess(text: string | undefined): KeptAccess | undefined {
  if (text === undefined) return undefined
  try {
    const { clusterset, exposure, accessDefault } = JSON.parse(text) as Readonly<Record<string, unknown>>
    const isKnown =
      typeof clusterset === 'string' &&
      (exposure === undefined || exposure === 'exports' || exposure === 'pods' || exposure === 'nothing') &&
      (accessDefault === undefined || accessDefault === 'allow' || accessDefault === 'deny')
    if (!isKnown) return undefined
    return {
      clusterset,
      ...(exposure === undefined ? {} : { exposure }),
      ...(accessDefault === undefined ? {} : { accessDefault }),
    }
  } catch {
    return undefined
  }
}

/** Returns the store of a site without Kubernetes, `<state>/identity`. */
export function folderIdentity(directory: string): IdentityStore {
  return {
    place: directory,
    read: () => readMemberIdentity(directory),
    write: (identity) => writeMemberIdentity(directory, identity),
    remove: () => removeMemberIdentity(directory),
    access: async () => decodeAccess(await readIfThere(join(directory, ACCESS_PART))),
    keepAccess: async (access) => {
      if ((await readIfThere(join(directory, 'broker.json'))) === undefined) return
      await writePart(join(directory, ACCESS_PART), encodeAccess(access))
    },
  }
}
