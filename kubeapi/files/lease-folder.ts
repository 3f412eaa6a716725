/**
 * Leases on disk, which processes on several machines write: `<name>/<version>.json`. Each version is a file that is
 * created once and never changed. A hard link creates the next version and fails if another process was first, so there
 * is no lock that a dead process could keep. The highest version is effective.
 */
import {
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isObjectName } from '../../model/model.ts'
import { LEASE_FIELDS, METADATA, choice, integer, map, partOf, text, textThat } from '../../model/kinds/kinds.ts'
import { complaintOf } from '../../model/schemas/schemas.ts'
import { messageOf, temporaryPath } from '../../runtime/runtime.ts'
import { ClusterApiError, type StoredLease } from '../kubeapi.ts'
import { errorCode, isMissing, writeAside } from './atomic-write.ts'

// Finds the version files in a Lease's folder. Pure.

/** One write per millisecond would take 31 years to reach it. */
const LAST_VERSION = 999_999_999_999
const VERSION = /^([1-9]\d{0,11})\.json$/
/** Versions are consecutive. One that is this far from the others was not written by us. */
const MAX_GAP = 1000

interface ReadVersions {
  /** Highest first. */
  readonly versions: readonly number[]
  /** Names of the files that are not versions, and the reason. */
  readonly strange: readonly (readonly [name: string, why: string])[]
}

function versionFile(version: number): string {
  return `${version}.json`
}

/** Ignores names that start with a dot: files that are being written. */
export function readVersions(names: readonly string[]): ReadVersions {
  const known: number[] = []
  const strange: (readonly [string, string])[] = []
  for (const name of names) {
    const version = VERSION.exec(name)?.[1]
    if (version !== undefined) known.push(Number(version))
    else if (!name.startsWith('.')) strange.push([name, 'its name is not a version number'])
  }
  const runs = runsOf(known.sort((a, b) => a - b))
  const [first = []] = [...runs].sort((a, b) => b.length - a.length)
  for (const version of runs.flatMap((run) => (run === first ? [] : run))) {
    strange.push([versionFile(version), 'its number does not follow the others'])
  }
  return { versions: [...first].reverse(), strange }
}

function runsOf(ascending: readonly number[]): number[][] {
  const runs: number[][] = []
  for (const version of ascending) {
    const last = runs.at(-1)
    if (last !== undefined && version - (last.at(-1) ?? 0) <= MAX_GAP) last.push(version)
    else runs.push([version])
  }
  return runs
}

// Validates the content of a version file. Pure.

/** A Lease takes a few hundred octets. */
const MAX_LEASE_BYTES = 16_384
/** A holder with a longer duration could block all others with one write; ours use 10 and 15 seconds. */
const MAX_DURATION_S = 3600
/** The name of a Node, and a suffix that distinguishes processes on it. */
const MAX_HOLDER = 320
const DAY_MS = 86_400_000

const holder = textThat(
  `at most ${MAX_HOLDER} printable characters`,
  (value) => value.length <= MAX_HOLDER && /^[\x21-\x7e]*$/.test(value),
)

const lease = map({
  apiVersion: choice(['coordination.k8s.io/v1']),
  kind: choice(['Lease']),
  metadata: map({
    name: text(),
    uid: text(),
    ...partOf(METADATA, { labels: true, annotations: true, ownerReferences: true }).shape,
  }),
  spec: map({
    ...LEASE_FIELDS.shape.spec.unwrap().shape,
    holderIdentity: holder.optional(),
    leaseDurationSeconds: integer(1, MAX_DURATION_S).optional(),
    leaseTransitions: integer(0, Number.MAX_SAFE_INTEGER).optional(),
  }),
})

/** Names become folder names, so they must not contain '/' or '..'. */
const isLeaseName = isObjectName

/** Returns the Lease in a file's text, or what is wrong with it. */
function parseLease(name: string, content: string): StoredLease | { readonly complaint: string } {
  let value: unknown
  try {
    value = JSON.parse(content)
  } catch (error) {
    return { complaint: `no JSON: ${(error as Error).message.slice(0, 200)}` }
  }
  if (typeof value !== 'object' || value === null) return { complaint: 'expected a JSON object' }
  const complaint = complaintOf(lease, value)
  if (complaint !== undefined) return { complaint }
  const found = value as StoredLease
  return found.metadata.name === name ? found : { complaint: `metadata.name: expected ${name}` }
}

/**
 * Returns what is odd about the times of a Lease. The Lease is valid anyway: no process relies on its times, since
 * clocks differ. `nowMs` is milliseconds since 1970.
 */
export function oddTime({ spec }: StoredLease, nowMs: number): string | undefined {
  const aheadMs = Date.parse(spec?.renewTime ?? '') - nowMs
  return aheadMs > DAY_MS ? 'spec.renewTime is more than a day ahead of the clock of this machine' : undefined
}

export interface LeaseFolderDeps {
  /** Called with each file that is not valid. */
  readonly onDamaged: (path: string, why: string) => void
}

interface Made {
  readonly uid: string | undefined
  /** Inode of its file. */
  readonly ino: number
}

/** Versions that are this much older than the newest one are removed, but the last few always stay. */
const KEEP_MS = 60_000
const KEEP = 4
const MAX_RACES = 20

export class LeaseFolder {
  readonly #deps: LeaseFolderDeps
  readonly #root: string

  constructor(deps: LeaseFolderDeps, init: { readonly root: string }) {
    this.#deps = deps
    this.#root = init.root
  }

  /** Returns the names of all Leases, sorted. Throws ClusterApiError Unavailable. */
  names(): string[] {
    try {
      const entries = readdirSync(this.#root, { withFileTypes: true })
      return entries.flatMap((entry) => (entry.isDirectory() && isLeaseName(entry.name) ? [entry.name] : [])).sort()
    } catch (error) {
      throw unavailable('read', this.#root, error)
    }
  }

  /**
   * Returns the newest valid version; undefined if there is none. `resourceVersion` is the number of the newest file,
   * even if it is damaged, so that the next write goes past it. Throws ClusterApiError Unavailable: a file that cannot
   * be read may still exist.
   */
  read(name: string): StoredLease | undefined {
    const folder = this.#folderOf(name)
    for (let tries = 0; tries < MAX_RACES; tries += 1) {
      const versions = this.#versions(folder)
      const [newest] = versions
      if (newest === undefined) return undefined
      const lease = this.#newestUsable(name, versions)
      if (lease !== 'gone') return { ...lease, metadata: { ...lease.metadata, resourceVersion: String(newest) } }
    }
    throw new ClusterApiError('Unavailable', `cannot read ${folder}: its files disappear while they are read`)
  }

  /**
   * Creates version 1 if `metadata.resourceVersion` is absent, else the next version. Throws ClusterApiError: Conflict
   * if another process was first, Forbidden if the file system does not support it, Unavailable.
   */
  async write(lease: StoredLease): Promise<StoredLease> {
    const { resourceVersion, ...metadata } = lease.metadata
    const { name } = metadata
    const folder = this.#folderOf(name)
    const before = Number(resourceVersion ?? 0)
    const path = join(folder, versionFile(before + 1))
    if (before >= LAST_VERSION) {
      throw new ClusterApiError(
        'Unavailable',
        `${join(folder, versionFile(before))}: this is the highest version number; remove the file`,
      )
    }
    // Written before versions are compared, since writing takes time.
    const temporary = await this.#temporary(path, `${JSON.stringify({ ...lease, metadata })}\n`)
    try {
      const now = this.read(name)?.metadata
      const isSame = now?.resourceVersion === resourceVersion && (now?.uid ?? metadata.uid) === metadata.uid
      const { ino } = lstatSync(temporary)
      if (!isSame || !link(temporary, path) || !this.#follows(name, before, { uid: metadata.uid, ino }))
        throw conflict(name)
      this.#prune(folder)
    } catch (error) {
      throw error instanceof ClusterApiError ? error : this.#notWritten(path, error)
    } finally {
      rmSync(temporary, { force: true })
    }
    return { ...lease, metadata: { ...metadata, resourceVersion: String(before + 1) } }
  }

  /**
   * Removes all versions at once, even while other processes write: it first renames the folder. Does nothing if there
   * is none. Throws ClusterApiError Unavailable.
   */
  remove(name: string): void {
    const folder = this.#folderOf(name)
    const removed = temporaryPath(folder)
    try {
      renameSync(folder, removed)
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return
      throw unavailable('remove', folder, error)
    }
    try {
      rmSync(removed, { recursive: true, force: true })
    } catch {
      // The Lease is removed anyway; the next start cleans up the temporary folder.
    }
  }

  #folderOf(name: string): string {
    if (isLeaseName(name)) return join(this.#root, name)
    throw new ClusterApiError('Invalid', `Lease ${JSON.stringify(name)}: expected an RFC 1123 subdomain`)
  }

  async #temporary(path: string, text: string): Promise<string> {
    try {
      // Does not create the root: if that is missing, the whole state is not accessible.
      const folder = join(path, '..')
      if (statSync(folder, { throwIfNoEntry: false }) === undefined) mkdirSync(folder, { recursive: false })
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw unavailable('write', path, error)
    }
    try {
      return await writeAside(path, text)
    } catch (error) {
      throw this.#notWritten(path, error)
    }
  }

  /** If another process removed the Lease in the meantime, it counts as a conflict. */
  #notWritten(path: string, error: unknown): ClusterApiError {
    const isRemoved =
      errorCode(error) === 'ENOENT' && statSync(this.#root, { throwIfNoEntry: false })?.isDirectory() === true
    return isRemoved ? conflict(basename(dirname(path))) : unavailable('write', path, error)
  }

  /** Highest first. */
  #versions(folder: string): readonly number[] {
    try {
      const { versions, strange } = readVersions(readdirSync(folder))
      for (const [name, why] of strange) this.#deps.onDamaged(join(folder, name), why)
      return versions
    } catch (error) {
      if (!isMissing(error)) throw unavailable('read', folder, error)
      if (statSync(this.#root, { throwIfNoEntry: false })?.isDirectory() === true) return []
      throw new ClusterApiError('Unavailable', `cannot read ${folder}: the state folder is not accessible`)
    }
  }

  /**
   * Returns 'gone' if the newest version was removed in the meantime. If all versions are damaged, the Lease has no
   * holder.
   */
  #newestUsable(name: string, versions: readonly number[]): StoredLease | 'gone' {
    const folder = this.#folderOf(name)
    for (const [i, version] of versions.entries()) {
      const path = join(folder, versionFile(version))
      const content = readSmall(path)
      if (content === undefined) {
        if (i === 0) return 'gone'
        continue
      }
      const lease = content.is === 'text' ? parseLease(name, content.text) : { complaint: content.why }
      if (!('complaint' in lease)) return lease
      this.#deps.onDamaged(path, lease.complaint)
    }
    return { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name }, spec: {} }
  }

  /**
   * Whether the version after `before`, just created, is the first of that number. A process that slept for a minute
   * could create a number again that had been pruned; its predecessor is pruned then, too. Version 1 has no
   * predecessor, but all later versions have its uid.
   */
  #follows(name: string, before: number, { uid, ino }: Made): boolean {
    const folder = this.#folderOf(name)
    const isFirst =
      before === 0
        ? this.read(name)?.metadata.uid === uid
        : lstatSync(join(folder, versionFile(before)), { throwIfNoEntry: false }) !== undefined
    const path = join(folder, versionFile(before + 1))
    // If the Lease was removed in the meantime, the file may belong to another process.
    if (!isFirst && lstatSync(path, { throwIfNoEntry: false })?.ino === ino) rmSync(path, { force: true })
    return isFirst
  }

  /** Removes the lowest first, without a gap, since #follows() depends on that. Best effort. */
  #prune(folder: string): void {
    try {
      const versions = this.#versions(folder)
      const at = (version: number): string => join(folder, versionFile(version))
      const oldMs = lstatSync(at(versions[0] ?? 0)).mtimeMs - KEEP_MS
      for (const version of versions.slice(KEEP).reverse()) {
        if (lstatSync(at(version)).mtimeMs > oldMs) return
        unlinkSync(at(version))
      }
    } catch {
      // Another process prunes at the same time.
    }
  }
}

type Content = { readonly is: 'text'; readonly text: string } | { readonly is: 'unusable'; readonly why: string }

/**
 * Returns undefined if the file does not exist. Throws ClusterApiError Unavailable: a file that cannot be read may be
 * valid.
 */
function readSmall(path: string): Content | undefined {
  try {
    const stats = lstatSync(path)
    if (!stats.isFile()) return { is: 'unusable', why: 'not a regular file' }
    if (stats.size > MAX_LEASE_BYTES) return { is: 'unusable', why: `more than ${MAX_LEASE_BYTES} octets` }
    return { is: 'text', text: readFileSync(path, 'utf8') }
  } catch (error) {
    if (isMissing(error)) return undefined
    throw unavailable('read', path, error)
  }
}

/** Returns false if the name is taken. */
function link(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error
    // A file server may have made the link, lost its answer, and received the request again.
    return lstatSync(to, { throwIfNoEntry: false })?.ino === lstatSync(from).ino
  }
}

function conflict(name: string): ClusterApiError {
  return new ClusterApiError('Conflict', `Lease ${name}: another process has changed it meanwhile`)
}

const NO_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

function unavailable(verb: string, path: string, error: unknown): ClusterApiError {
  if ((error as NodeJS.ErrnoException).syscall === 'link' && NO_LINKS.has(errorCode(error))) {
    const why = 'its file system does not support hard links, which Leases need'
    return new ClusterApiError('Forbidden', `cannot ${verb} ${path}: ${why}`, { cause: error })
  }
  return new ClusterApiError('Unavailable', `cannot ${verb} ${path}: ${messageOf(error)}`, { cause: error })
}
