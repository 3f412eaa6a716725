/**
 * Leases on disk, which processes on several machines write: `<name>/<version>.json`, each version a file that is made
 * once and never changed. The next version is made by a hard link, which fails where somebody was faster, so no lock is
 * needed that a dead process could keep. The highest version counts.
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
import {
  complaintOf,
  field,
  integer,
  isText,
  list,
  map,
  oneOf,
  text,
  textMap,
  timestamp,
} from '../../model/schemas/schemas.ts'
import { messageOf, temporaryPath } from '../../runtime/runtime.ts'
import { ClusterApiError, type StoredLease } from '../kubeapi.ts'
import { errorCode, isMissing, writeAside } from './atomic-write.ts'

// Which files of a Lease's folder are its versions. Pure.

/** One write in a millisecond would take 31 years to get there. */
const LAST_VERSION = 999_999_999_999
const VERSION = /^([1-9]\d{0,11})\.json$/
/** Versions follow each other. What is so far from the others is not one that we wrote. */
const MAX_GAP = 1000

interface ReadVersions {
  /** Highest first. */
  readonly versions: readonly number[]
  /** Names of what does not count, and why not. */
  readonly strange: readonly (readonly [name: string, why: string])[]
}

function versionFile(version: number): string {
  return `${version}.json`
}

/** Names that start with a dot are passed by: files that are being made. */
export function readVersions(names: readonly string[]): ReadVersions {
  const known: number[] = []
  const strange: (readonly [string, string])[] = []
  for (const name of names) {
    const version = VERSION.exec(name)?.[1]
    if (version !== undefined) known.push(Number(version))
    else if (!name.startsWith('.')) strange.push([name, 'its name is no number of a version'])
  }
  const runs = runsOf(known.sort((a, b) => a - b))
  const [first = []] = [...runs].sort((a, b) => b.length - a.length)
  for (const version of runs.flatMap((run) => (run === first ? [] : run))) {
    strange.push([versionFile(version), 'its number is out of line with the others'])
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

// What a file must look like to count as a version of a Lease. Pure.

/** A Lease has some hundred octets. */
const MAX_LEASE_BYTES = 16_384
/** Whoever holds for longer could keep all others out by one write; ours hold for 10 and 15 seconds. */
const MAX_DURATION_S = 3600
/** A name of a Node, and what tells apart processes there. */
const MAX_HOLDER = 320
const DAY_MS = 86_400_000

const holder = field<string>(
  `at most ${MAX_HOLDER} printable characters`,
  (value) => isText(value) && value.length <= MAX_HOLDER && /^[\x21-\x7e]*$/.test(value),
)
const owner = map({ apiVersion: text, kind: text, name: text, uid: text })

const lease = map({
  apiVersion: oneOf('coordination.k8s.io/v1'),
  kind: oneOf('Lease'),
  metadata: map({
    name: text,
    uid: text,
    labels: textMap.optional(),
    annotations: textMap.optional(),
    ownerReferences: list(owner).optional(),
  }),
  spec: map({
    holderIdentity: holder.optional(),
    leaseDurationSeconds: integer(1, MAX_DURATION_S).optional(),
    acquireTime: timestamp.optional(),
    renewTime: timestamp.optional(),
    leaseTransitions: integer(0, Number.MAX_SAFE_INTEGER).optional(),
  }),
})

/** Names become names of folders: no '/', no '..'. */
const isLeaseName = isObjectName

/** The Lease in a file's text, or what is wrong with it. */
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
 * What is odd about a Lease that counts all the same: nobody goes by its times, since clocks differ. `nowMs` is
 * milliseconds since 1970.
 */
export function oddTime({ spec }: StoredLease, nowMs: number): string | undefined {
  const aheadMs = Date.parse(spec?.renewTime ?? '') - nowMs
  return aheadMs > DAY_MS ? 'spec.renewTime is more than a day ahead of the clock of this machine' : undefined
}

export interface LeaseFolderDeps {
  /** Called with each file that does not count. */
  readonly onDamaged: (path: string, why: string) => void
}

interface Made {
  readonly uid: string | undefined
  /** Of its file. */
  readonly ino: number
}

/** Versions so much older than the newest one go, but some always stay. */
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

  /** Of all Leases that there are, sorted. Throws ClusterApiError Unavailable. */
  names(): string[] {
    try {
      const entries = readdirSync(this.#root, { withFileTypes: true })
      return entries.flatMap((entry) => (entry.isDirectory() && isLeaseName(entry.name) ? [entry.name] : [])).sort()
    } catch (error) {
      throw unavailable('read', this.#root, error)
    }
  }

  /**
   * The newest version that can be used. Where a newer file is damaged, the next write goes past it: its number is
   * `resourceVersion`. Undefined: there is none. Throws ClusterApiError Unavailable: what cannot be seen is not gone.
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
    throw new ClusterApiError('Unavailable', `cannot read ${folder}: its files vanish while they are read`)
  }

  /**
   * Makes version 1 where `metadata.resourceVersion` is absent, else the one after it. Throws ClusterApiError: Conflict
   * when somebody was faster, Forbidden where the file system cannot do it, Unavailable.
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
        `${join(folder, versionFile(before))}: no version can follow it; remove it`,
      )
    }
    // Made before anything is compared: this takes time.
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
   * All versions go at once, also while others write: the folder is moved out of sight first. Absent is fine. Throws
   * ClusterApiError Unavailable.
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
      // It is removed all the same: what is left is a temporary, which the next start tidies.
    }
  }

  #folderOf(name: string): string {
    if (isLeaseName(name)) return join(this.#root, name)
    throw new ClusterApiError('Invalid', `Lease ${JSON.stringify(name)}: expected an RFC 1123 subdomain`)
  }

  async #temporary(path: string, text: string): Promise<string> {
    try {
      // Not the root: where that is missing, the whole state is out of sight.
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

  /** What another process removed meanwhile was written by it, as it were. */
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
      throw new ClusterApiError('Unavailable', `cannot read ${folder}: the state folder is out of sight`)
    }
  }

  /** gone: the newest version was removed meanwhile. Where all are damaged nobody holds it. */
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
   * Whether the version after `before`, just made, is the first of that number. A process that slept for a minute could
   * make one anew that had been pruned: the one before it is pruned then as well. Version 1 has none before it, but all
   * that follow have its uid.
   */
  #follows(name: string, before: number, { uid, ino }: Made): boolean {
    const folder = this.#folderOf(name)
    const isFirst =
      before === 0
        ? this.read(name)?.metadata.uid === uid
        : lstatSync(join(folder, versionFile(before)), { throwIfNoEntry: false }) !== undefined
    const path = join(folder, versionFile(before + 1))
    // Where the Lease was removed meanwhile, it may be another process's.
    if (!isFirst && lstatSync(path, { throwIfNoEntry: false })?.ino === ino) rmSync(path, { force: true })
    return isFirst
  }

  /** Lowest first, without a gap: #follows() goes by that. Best effort. */
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
      // Another process prunes as well.
    }
  }
}

type Content = { readonly is: 'text'; readonly text: string } | { readonly is: 'unusable'; readonly why: string }

/** Undefined: it is not there. Throws ClusterApiError Unavailable: what cannot be read may be right. */
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

/** False where the name is taken. */
function link(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error
    // A file server may have done it, and been asked again when its answer was lost.
    return lstatSync(to, { throwIfNoEntry: false })?.ino === lstatSync(from).ino
  }
}

function conflict(name: string): ClusterApiError {
  return new ClusterApiError('Conflict', `Lease ${name}: another process was faster`)
}

const NO_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

function unavailable(verb: string, path: string, error: unknown): ClusterApiError {
  if ((error as NodeJS.ErrnoException).syscall === 'link' && NO_LINKS.has(errorCode(error))) {
    const why = 'its file system has no hard links, which Leases need'
    return new ClusterApiError('Forbidden', `cannot ${verb} ${path}: ${why}`, { cause: error })
  }
  return new ClusterApiError('Unavailable', `cannot ${verb} ${path}: ${messageOf(error)}`, { cause: error })
}
