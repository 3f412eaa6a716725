/**
 * The files of a plain site that all its hubs have: the site file, the user's objects, and of the state what belongs to
 * the site and not to one machine. A hub keeps its own facts beside them: the term in which it acts, and a promotion.
 *
 *   site.yaml, objects/**                                       the user's
 *   state/objects, state/files, state/leases                    the driver's
 *   state/identity                                              of the cluster, at its broker
 *   state/hub                                                   authority, nodes, and members.json: the hubs that vote
 *   state/hub/removed                                           SharedMarks
 *   state/term/term.json, state/term/promote                    of this machine only
 *   state/removed/                                              marks of this machine only (RemovalMarks)
 *   state/discarded/<time>/                                     the user's files that the acting hub did not have
 *
 * An object of the state, a part of the identity, a node and an invitation are removed only with a mark. One that is missing
 * without it was lost by the disk, and no hub takes that for news. An empty file takes its place until its writer or another
 * hub gives the content; of the identity nothing does, because readers of an empty file fail.
 */
import { createHash } from 'node:crypto'
import { readFileSync, renameSync, rmSync } from 'node:fs'
import { constants, copyFile, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'
import { RemovalMarks } from '../../kubeapi/files/files.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import {
  type Changed,
  type Removals,
  type SiteTree,
  type StoredTerm,
  type TreePath,
  parseStoredTerm,
} from '../../kubeapi/remote/remote.ts'
import { IDENTITY_PARTS } from '../../protocol/membership/membership.ts'
import { type Clock, SerialQueue } from '../../reconcile/reconcile.ts'
import { UserError, createFile, messageOf, replaceFile, syncPath, writeTemporary } from '../../runtime/runtime.ts'
import { canRestore, isNewer } from './plan-identity.ts'
import { SharedMarks } from './shared-marks.ts'

export interface TreePlaces {
  /** Absolute paths. */
  readonly file: string
  readonly objects: string
  readonly state: string
}

const STATE_FOLDERS = ['objects', 'files', 'leases', 'identity', 'hub'] as const
const MEMBERS = 'state/hub/members.json'
/** Every site of several hubs has these, so one that is missing is a fault of the disk. */
const NEVER_GONE: ReadonlySet<TreePath> = new Set(['site.yaml', 'state/hub/authority.pem', MEMBERS])
/** Nobody removes these without a mark of the machine. */
const MARKED = /^state\/objects\//
/** Nobody removes these without a mark that all hubs get. */
const SHARED =
  /^state\/(hub\/(authority\.pem$|(nodes|invitations)\/)|identity\/(cluster\.key|ca\.crt|cluster\.crt|broker\.json|access\.json)$)/
const SHARED_MARK = /^state\/hub\/removed\//
const IDENTITY = /^state\/identity\//
const AUTHORITY = 'state/hub/authority.pem'
/** Each site that has joined has these, and its Membership. */
const IDENTITY_PATHS: readonly TreePath[] = IDENTITY_PARTS.map((name) => `state/identity/${name}`)
const MEMBERSHIP = 'state/objects/Membership/_/self.json'
/** In place of the stamp of a file that the disk has lost, and that no file takes the place of. */
const LOST = 'lost'
/** Of one file in one run. */
const MOST_KEPT = 100
const USER = /\.(ya?ml|json)$/
const PATH = /^(site\.yaml|objects\/.+|state\/(objects|files|leases|identity|hub)\/.+)$/
const MAX_OCTETS = 2_000_000
/** The kernel writes to the disk what is older, without a sync. */
const KERNEL_MS = 600_000
/** After this time of a run, other hubs have heard of what was removed before it. */
const MARKS_MS = 3_600_000

interface Known {
  readonly stamp: string
  hash?: string
  /** Of this stamp. */
  isDamaged?: boolean
}

export class HubTree implements SiteTree {
  readonly #places: TreePlaces
  readonly #known = new Map<TreePath, Known>()
  /** The hashes of what this process has written of the user's files. */
  readonly #written = new Map<TreePath, string>()
  /** The hashes of damaged contents that other hubs sent, of files that are good here. */
  readonly #refused = new Map<TreePath, string>()
  /** What the disk may not have yet: files of the tree, and absolute paths of folders. */
  readonly #unsynced = new Set<TreePath>()
  readonly #folders = new Set<string>()
  readonly #syncs = new SerialQueue()
  readonly #marks: RemovalMarks
  readonly #sharedMarks: SharedMarks
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>
  readonly #startMs: number
  /** When stale marks were last dropped, or this process started, in monotonic milliseconds. */
  #marksMs: number
  #isFirst = true
  #members: readonly string[] | undefined
  /** Where this process keeps the user's files that it replaces. */
  readonly #discarded: string

  constructor(places: TreePlaces, clock: Pick<Clock, 'now' | 'monotonic'>) {
    this.#places = places
    this.#clock = clock
    this.#startMs = clock.now()
    this.#marksMs = clock.monotonic()
    this.#marks = new RemovalMarks(places.state)
    this.#sharedMarks = new SharedMarks(places.state)
    this.#discarded = join(places.state, 'discarded', new Date(this.#startMs).toISOString().replaceAll(':', '-'))
  }

  members(): readonly string[] {
    return (this.#members ??= this.#readMembers())
  }

  async setMembers(members: readonly string[]): Promise<void> {
    await makeFolder(join(this.#places.state, 'hub'))
    await replaceFile(this.#pathOf(MEMBERS), `${JSON.stringify(members)}\n`)
    await syncPath(join(this.#places.state, 'hub'))
    this.#members = undefined
  }

  async changed(only?: Changed): Promise<readonly TreePath[]> {
    const seen = new Map<TreePath, string>()
    const isWanted = only === undefined ? (): boolean => true : wantedBy(only)
    if (only === undefined) await this.#list(seen)
    else if ('lease' in only) await this.#listFolder(`state/leases/${only.lease}`, seen)
    else if ('enrolled' in only) {
      await this.#look(nodePath(only.enrolled), seen)
      await this.#listFolder(INVITATIONS, seen)
    } else for (const path of pathsOf(only)) await this.#look(path, seen)
    if (only === undefined) await this.#dropStaleMarks()
    const gone = [...this.#known.keys()].filter((path) => !seen.has(path) && isWanted(path))
    for (const path of gone) if (this.#isLost(path)) await this.#keepPlace(path, seen)
    const changed: TreePath[] = []
    for (const [path, stamp] of seen) {
      if (this.#known.get(path)?.stamp === stamp) continue
      this.#known.set(path, { stamp })
      if (stamp !== LOST) this.#noteUnsynced(path, stamp)
      if (SHARED.test(path)) await this.#dropOldMark(path)
      changed.push(path)
    }
    for (const path of gone) {
      if (seen.has(path)) continue
      // All hubs keep the mark of what they share: one that is away now must hear of it, too.
      if (MARKED.test(path)) this.#marks.drop(markOf(path))
      this.#known.delete(path)
      this.#unsynced.delete(path)
      this.#written.delete(path)
      this.#refused.delete(path)
      this.#folders.add(dirname(this.#pathOf(path)))
      changed.push(path)
    }
    if (only === undefined) this.#isFirst = false
    if (changed.includes(MEMBERS)) this.#members = undefined
    return changed
  }

  async read(path: TreePath): Promise<Uint8Array | 'damaged' | undefined> {
    const content = await contentOf(this.#pathOf(path))
    const counts = content === undefined ? !this.#isLost(path) : !isDamaged(path, content)
    return counts ? content : 'damaged'
  }

  async restore(path: TreePath, content: Uint8Array): Promise<boolean> {
    if (isDamaged(path, content)) return false
    const place = this.#pathOf(path)
    const present = await contentOf(place)
    const isLost = present === undefined ? this.isKept(path) && !this.#hasMark(path) : isDamaged(path, present)
    const isOld = present !== undefined && !isLost && isNewer(path, content, present)
    if (!isLost && !isOld) return false
    if (isLost && !canRestore(path, content, await this.#identity())) return false
    await makeFolder(dirname(place))
    // Its writer may be faster: what is good now stays.
    if (present === undefined) return createFile(place, content)
    const temporary = await writeTemporary(place, content, 0o600)
    try {
      const latest = readFileSync(place)
      if (!isDamaged(path, latest) && !isNewer(path, content, latest)) return false
      renameSync(temporary, place)
      return true
    } catch (error) {
      if (isMissing(error)) return false
      throw error
    } finally {
      await rm(temporary, { force: true })
    }
  }

  isKept(path: TreePath): boolean {
    return MARKED.test(path) || SHARED.test(path)
  }

  isShared(path: TreePath): boolean {
    return SHARED.test(path)
  }

  async lacks(): Promise<readonly TreePath[]> {
    const hasJoined = (await contentOf(this.#pathOf(MEMBERSHIP))) !== undefined
    const lacking: TreePath[] = []
    for (const path of [AUTHORITY, ...(hasJoined ? IDENTITY_PATHS : [])])
      if (this.#isLost(path) && (await contentOf(this.#pathOf(path))) === undefined) lacking.push(path)
    return lacking
  }

  async isNewer(path: TreePath, content: Uint8Array): Promise<boolean> {
    const present = await contentOf(this.#pathOf(path))
    return present !== undefined && isNewer(path, content, present)
  }

  hasRefused(path: TreePath, hash: string): boolean {
    return this.#refused.get(path) === hash
  }

  sync(onProgress?: () => void): Promise<void> {
    return this.#syncs.run(() => this.#sync(onProgress))
  }

  async #sync(onProgress?: () => void): Promise<void> {
    // What becomes unsynced meanwhile is left to the next call, or one that writes fast would never let this end.
    for (const path of [...this.#unsynced]) {
      // A file that is written again during its sync is found again.
      this.#unsynced.delete(path)
      const place = this.#pathOf(path)
      this.#folders.add(dirname(place))
      await syncPath(place).catch((error: unknown) => {
        this.#unsynced.add(path)
        throw error
      })
      onProgress?.()
    }
    for (const folder of [...this.#folders]) {
      this.#folders.delete(folder)
      await syncPath(folder).catch((error: unknown) => {
        this.#folders.add(folder)
        throw error
      })
      onProgress?.()
    }
  }

  async write(path: TreePath, content: Uint8Array | undefined): Promise<'newer' | undefined> {
    const place = this.#pathOf(path)
    const present = await contentOf(place)
    if (content !== undefined && present !== undefined && Buffer.from(present).equals(content)) {
      this.#unsynced.add(path)
      return undefined
    }
    if (content !== undefined && present !== undefined && isDamaged(path, content) && !isDamaged(path, present)) {
      this.#refused.set(path, hashOf(content))
      return undefined
    }
    if (content !== undefined && present !== undefined && isNewer(path, present, content)) {
      this.#refused.set(path, hashOf(content))
      return 'newer'
    }
    this.#refused.delete(path)
    this.#folders.add(dirname(place))
    // What the acting hub says is newer than a mark of this machine.
    if (MARKED.test(path)) this.#marks.drop(markOf(path))
    if (SHARED.test(path) && content !== undefined) this.#sharedMarks.drop(markOf(path))
    if (content === undefined && NEVER_GONE.has(path))
      throw new ClusterApiError('Invalid', `path ${path}: expected a content, since no site is without it`)
    // A hub of an earlier release marks nothing.
    if (SHARED.test(path) && content === undefined) await this.#sharedMarks.add(markOf(path))
    if (present !== undefined) await this.#keepUser(path, place, present)
    if (content === undefined) {
      await rm(place, { force: true })
      this.#unsynced.delete(path)
      this.#known.delete(path)
      this.#written.delete(path)
    } else {
      await makeFolder(dirname(place))
      await replaceFile(place, content)
      this.#written.set(path, hashOf(content))
      const seen = new Map<TreePath, string>()
      await this.#look(path, seen)
      this.#known.set(path, {
        ...{ stamp: seen.get(path) ?? '', hash: hashOf(content) },
        isDamaged: isDamaged(path, content),
      })
    }
    if (path === MEMBERS) this.#members = undefined
    return undefined
  }

  async hashes(): Promise<readonly (readonly [TreePath, string | undefined])[]> {
    const seen = new Map<TreePath, string>()
    await this.#list(seen)
    const hashes: [TreePath, string | undefined][] = []
    for (const [path, stamp] of seen) {
      const known = this.#known.get(path)
      if (known?.stamp !== stamp) this.#noteUnsynced(path, stamp)
      else if (known.hash !== undefined) {
        hashes.push([path, known.isDamaged === true ? undefined : known.hash])
        continue
      }
      const content = await contentOf(this.#pathOf(path))
      if (content === undefined) continue
      const [hash, damaged] = [hashOf(content), isDamaged(path, content)]
      if (known?.stamp === stamp) Object.assign(known, { hash, isDamaged: damaged })
      hashes.push([path, damaged ? undefined : hash])
    }
    // The next look gives these a place.
    for (const path of this.#known.keys()) if (!seen.has(path) && this.#isLost(path)) hashes.push([path, undefined])
    return hashes
  }

  async keepOnly(paths: ReadonlySet<TreePath>, removals?: Removals): Promise<readonly TreePath[]> {
    const seen = new Map<TreePath, string>()
    await this.#list(seen)
    const kept: TreePath[] = []
    for (const path of seen.keys()) {
      if (paths.has(path)) continue
      const isLost = removals === 'marked' && SHARED.test(path) && !this.#hasMark(path)
      if (isLost) kept.push(path)
      else if (removals !== undefined || !SHARED_MARK.test(path)) await this.write(path, undefined)
      // Of an earlier site: this one has removed nothing.
      if (removals === 'all' && SHARED.test(path)) this.#sharedMarks.drop(markOf(path))
    }
    return kept
  }

  /** Not at once after a start: after days without power, another hub may still have what was removed last. */
  async #dropStaleMarks(): Promise<void> {
    const nowMs = this.#clock.monotonic()
    if (nowMs - this.#marksMs < MARKS_MS) return
    this.#marksMs = nowMs
    await this.#marks.dropStale(this.#clock.now())
    await this.#sharedMarks.dropStale(this.#clock.now())
  }

  /**
   * Whether a file that is missing is not one that its owner has removed. An object counts only if it was there at the last
   * look: its marks go once the others have heard of them.
   */
  #isLost(path: TreePath): boolean {
    if (SHARED.test(path)) return !this.#hasMark(path)
    return MARKED.test(path) && this.#known.has(path) && !this.#hasMark(path)
  }

  #hasMark(path: TreePath): boolean {
    return SHARED.test(path) ? this.#sharedMarks.has(markOf(path)) : this.#marks.has(markOf(path))
  }

  /** For a file that the disk has lost. */
  async #keepPlace(path: TreePath, seen: Map<TreePath, string>): Promise<void> {
    if (!IDENTITY.test(path)) {
      const place = this.#pathOf(path)
      await makeFolder(dirname(place))
      await writeFile(place, '', { flag: 'wx', mode: 0o600 }).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      })
      await this.#look(path, seen)
    }
    // Also where a folder or a pipe has its name.
    if (!seen.has(path)) seen.set(path, LOST)
  }

  /** A file that was written after its mark is not the one that was removed. */
  async #dropOldMark(path: TreePath): Promise<void> {
    const madeMs = this.#sharedMarks.madeMs(markOf(path))
    if (madeMs === undefined) return
    const { ctimeMs } = await stat(this.#pathOf(path)).catch(() => ({ ctimeMs: -Infinity }))
    if (ctimeMs > madeMs) this.#sharedMarks.drop(markOf(path))
  }

  /** What of the identity is good on this disk. */
  async #identity(): Promise<ReadonlyMap<TreePath, Uint8Array>> {
    const good = new Map<TreePath, Uint8Array>()
    for (const path of IDENTITY_PATHS) {
      const content = await contentOf(this.#pathOf(path))
      if (content !== undefined && !isDamaged(path, content)) good.set(path, content)
    }
    return good
  }

  /** At the start, files that the kernel has written long ago need no sync: there may be very many. */
  #noteUnsynced(path: TreePath, stamp: string): void {
    const mtimeMs = Number(stamp.split(' ')[1])
    if (!this.#isFirst || mtimeMs >= this.#startMs - KERNEL_MS) this.#unsynced.add(path)
  }

  /** What the user wrote by hand on a machine that does not act must not be lost. */
  async #keepUser(path: TreePath, place: string, present: Uint8Array): Promise<void> {
    if (path !== 'site.yaml' && !path.startsWith('objects/')) return
    if (this.#written.get(path) === hashOf(present)) return
    const kept = join(this.#discarded, path)
    await makeFolder(dirname(kept))
    for (let n = 0; n < MOST_KEPT; n += 1) {
      const isTaken = await copyFile(place, n === 0 ? kept : `${kept}.${n}`, constants.COPYFILE_EXCL).then(
        () => false,
        (error: unknown) => {
          if ((error as NodeJS.ErrnoException).code === 'EEXIST') return true
          throw error
        },
      )
      if (!isTaken) return
    }
    throw new ClusterApiError('Unavailable', `${kept}: there are ${MOST_KEPT} copies of this file already`)
  }

  #pathOf(path: TreePath): string {
    const parts = path.split('/')
    if (!PATH.test(path) || path.includes('\0') || parts.some((part) => part === '' || part.startsWith('.')))
      throw new ClusterApiError('Invalid', `path ${JSON.stringify(path.slice(0, 200))}: expected one of a site`)
    const { file, objects, state } = this.#places
    if (path === 'site.yaml') return file
    const place = parts[0] === 'objects' ? objects : state
    return join(place, ...parts.slice(1))
  }

  async #list(seen: Map<TreePath, string>): Promise<void> {
    await this.#look('site.yaml', seen)
    await this.#listFolder('objects', seen)
    for (const folder of STATE_FOLDERS) await this.#listFolder(`state/${folder}`, seen)
    for (const path of NEVER_GONE) {
      if (this.#known.has(path) && !seen.has(path)) throw this.#vanished(path)
    }
  }

  /** A folder that was unmounted or removed says nothing about the files of the site. */
  #vanished(path: TreePath): ClusterApiError {
    return new ClusterApiError(
      'Unavailable',
      `${path}: it was there, and is missing now; this hub tells the others nothing`,
    )
  }

  async #listFolder(folder: string, seen: Map<TreePath, string>): Promise<void> {
    const isUser = folder === 'objects' || folder.startsWith('objects/')
    const { objects, state } = this.#places
    const place = join(folder.startsWith('state') ? state : objects, ...folder.split('/').slice(1))
    // The state may lie in the folder of the user's objects.
    if (isUser && (place === state || place.startsWith(state + sep))) return
    const entries = await readdir(place, { withFileTypes: true }).catch((error: unknown) => {
      if (!isMissing(error)) throw error
      const isRoot = folder === 'objects' || folder.split('/').length === 2
      if (isRoot && [...this.#known.keys()].some((path) => path.startsWith(`${folder}/`))) throw this.#vanished(folder)
      return []
    })
    for (const entry of entries) {
      if (entry.name.startsWith('.')) continue
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) await this.#listFolder(path, seen)
      else if (!isUser || USER.test(entry.name)) await this.#look(path, seen)
    }
  }

  async #look(path: TreePath, seen: Map<TreePath, string>): Promise<void> {
    try {
      const found = await stat(this.#pathOf(path))
      const { size, mtimeMs, ino } = found
      // A named pipe in the user's folder would never end.
      if (found.isFile() && size <= MAX_OCTETS) seen.set(path, `${size} ${mtimeMs} ${ino}`)
    } catch (error) {
      if (!isMissing(error)) throw error
    }
  }

  #readMembers(): readonly string[] {
    try {
      const value: unknown = JSON.parse(readFileSync(this.#pathOf(MEMBERS), 'utf8'))
      return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []
    } catch {
      return []
    }
  }
}

function wantedBy(only: Changed): (path: TreePath) => boolean {
  if ('lease' in only) return (path) => path.startsWith(`state/leases/${only.lease}/`)
  if ('enrolled' in only) return (path) => path === nodePath(only.enrolled) || path.startsWith(`${INVITATIONS}/`)
  const paths = pathsOf(only)
  return (path) => paths.includes(path)
}

/** The marks name paths below the state folder. */
function markOf(path: TreePath): string {
  return path.replace(/^state\//, '')
}

/** As in hub-store.ts. */
const INVITATIONS = 'state/hub/invitations'
function nodePath(node: string): TreePath {
  return `state/hub/nodes/${node}.json`
}

/** As in kubeapi/files/state-folder.ts. */
function pathsOf({ kind, name, namespace }: Extract<Changed, { readonly name: string }>): readonly TreePath[] {
  return ['', '@status'].map((part) => `state/objects/${kind}/${namespace ?? '_'}/${name}${part}.json`)
}

/** Undefined for all that #look() takes for no file. */
async function contentOf(path: string): Promise<Uint8Array | undefined> {
  try {
    return (await stat(path)).isFile() ? await readFile(path) : undefined
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 })
}

function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'EISDIR'].includes((error as NodeJS.ErrnoException).code ?? '')
}

function hashOf(content: Uint8Array): string {
  return createHash('sha256').update(content).digest('hex')
}

/** The facts of this machine's hub. */
export class TermStore {
  readonly #folder: string

  /** `state` is the state folder of the hub's files. */
  constructor(state: string) {
    this.#folder = join(state, 'term')
  }

  /** Whether the hub of this machine acts, or last did; undefined if it is not one of several. */
  acts(): boolean | undefined {
    return this.#read()?.acts
  }

  /** Undefined before the first term. Throws UserError: a hub that forgot its vote could elect two. */
  load(own: string): StoredTerm | undefined {
    const { own: of, ...stored } = this.#read() ?? {}
    if (of === undefined) return undefined
    if (of === own) return stored as StoredTerm
    throw new UserError(`${this.#folder}: belongs to hub ${of} and not to ${own}`, {
      hint: 'several hubs share no folder; where nodes share the folder by NFS, name one address in spec.hub.listen',
    })
  }

  #read(): (StoredTerm & { readonly own: string }) | undefined {
    const file = join(this.#folder, 'term.json')
    try {
      return parseStoredTerm(readFileSync(file, 'utf8'))
    } catch (cause) {
      if (isMissing(cause)) return undefined
      throw new UserError(`${file}: cannot be used: ${messageOf(cause)}`, {
        cause,
        hint: 'invite this machine again as a hub, with an empty state folder',
      })
    }
  }

  async save(own: string, term: StoredTerm): Promise<void> {
    await makeFolder(this.#folder)
    await replaceFile(join(this.#folder, 'term.json'), `${JSON.stringify({ own, ...term })}\n`)
    // A vote that a power loss takes back could elect two.
    await syncPath(this.#folder)
  }

  async promote(): Promise<void> {
    await makeFolder(this.#folder)
    await replaceFile(join(this.#folder, 'promote'), '')
  }

  takePromotion(): boolean {
    try {
      rmSync(join(this.#folder, 'promote'))
      return true
    } catch {
      return false
    }
  }
}

// A power loss can leave a file empty, filled with NUL octets, or cut off: no hub takes such a content for news.

const PEM = /^state\/identity\/(cluster\.key|cluster\.crt|ca\.crt)$/
const OBJECT = /^state\/objects\/([^/]+)\/[^/]+\/[^/@]+(@status|@user)?\.json$/

/**
 * Checks only what all releases write in files of a kind, so that hubs of different releases exchange what one of them
 * does not know. The user's files are never damaged: what is in them is up to the user.
 */
export function isDamaged(path: TreePath, content: Uint8Array): boolean {
  if (!path.startsWith('state/')) return false
  if (content.every((octet) => octet === 0)) return true
  if (PEM.test(path))
    return !/-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----\s*$/.test(Buffer.from(content).toString())
  if (!path.endsWith('.json')) return false
  const value = jsonOf(content)
  if (typeof value !== 'object' || value === null) return true
  const [isObject, kind, part] = OBJECT.exec(path) ?? []
  if (isObject === undefined) return false
  const { kind: stated, metadata, uid } = value as Readonly<Record<string, unknown>>
  return part === undefined ? stated !== kind || typeof metadata !== 'object' || metadata === null : !isText(uid)
}

function jsonOf(content: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(content).toString())
  } catch {
    return undefined
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string'
}
