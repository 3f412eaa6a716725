/**
 * The state folder of one kind: `<namespace or _>/<name>.json` for objects that we applied, `<name>@status.json` for
 * statuses, `<name>@user.json` for notes on the user's own objects. '@' cannot occur in a name. Each file has one
 * writer at a time and is replaced as a whole.
 */
import { linkSync, readFileSync, renameSync, statSync, unlinkSync } from 'node:fs'
import { join, relative } from 'node:path'
import type { Kind, KubeObject } from '../../model/model.ts'
import { METADATA, integer, map, partOf, text } from '../../model/kinds/kinds.ts'
import { SPEC_SHAPES, STATUS_SHAPES, complaintOf } from '../../model/schemas/schemas.ts'
import { messageOf, temporaryPath } from '../../runtime/runtime.ts'
import { ClusterApiError } from '../kubeapi.ts'
import { NO_NAMESPACE, type ObjectKey, type StoredStatus, keyOf } from '../driver/driver.ts'
import { createFileOnce, type LaterSyncs, errorCode, isMissing, writeFileUnsynced } from './atomic-write.ts'
import type { RemovalMarks } from './removal-marks.ts'
import { stampOf } from './user/user-file.ts'

// Validates the fields of state files that the components use. Sealane wrote them, but a disk error or a manual edit
// may have damaged them since, and no process may crash because of that.

/** `object`: what apply() wrote; `status`: its status; `user`: facts about a user's object that are not in its YAML. */
export type StatePart = 'object' | 'status' | 'user'

const count = integer(0, Number.MAX_SAFE_INTEGER)
const metadata = map({ name: text(), namespace: text().optional(), ...partOf(METADATA, { labels: true }).shape })
const base = map({ kind: text(), metadata })
const note = map({ uid: text(), creationTimestamp: text(), generation: count, specHash: text() })
const anyStatus = map({ uid: text() })
const STORED_STATUSES = new Map(
  Object.entries(STATUS_SHAPES).map(([kind, status]) => [kind, map({ uid: text(), status: status.optional() })]),
)

/**
 * Returns what is wrong with the value of a state file, with the field and what was expected; undefined if nothing is.
 */
function shapeComplaint(kind: Kind, part: StatePart, value: object): string | undefined {
  if (part === 'user') return complaintOf(note, value)
  if (part === 'status') return complaintOf(STORED_STATUSES.get(kind) ?? anyStatus, value)
  const complaint = complaintOf(base, value)
  if (complaint !== undefined) return complaint
  if ((value as { kind: string }).kind !== kind) return `kind: expected ${kind}`
  const spec = SPEC_SHAPES[kind]
  return spec === undefined ? undefined : complaintOf(spec, value)
}

/** Facts about a user's object that are not in its YAML. */
export interface UserNote {
  readonly uid: string
  readonly creationTimestamp: string
  readonly generation: number
  /** Hash of the parts whose change is a new generation. */
  readonly specHash: string
}

interface StateParts {
  readonly object: KubeObject
  readonly status: StoredStatus
  readonly user: UserNote
}

/**
 * Temporary files are in this folder, below that of the kind. Every process of the site watches the folders of the files,
 * and would wake up for each step of a write. TreeWatcher skips names with a dot first.
 */
const ASIDE = '.new'

const SUFFIX: Readonly<Record<StatePart, string>> = { object: '', status: '@status', user: '@user' }

export interface StateFolderDeps {
  /** Called with each unusable file, which then counts as absent. */
  readonly onCorrupt: (path: string, reason: string) => void
  /** Called if the disk did not take a file that is written: it may be lost with the next crash of the machine. */
  readonly onSyncError: (path: string, error: unknown) => void
  readonly syncs: LaterSyncs
  /** Where several hubs keep the files of the site equal. */
  readonly marks?: RemovalMarks | undefined
}

export class StateFolder {
  readonly path: string
  readonly #kind: Kind
  readonly #onCorrupt: StateFolderDeps['onCorrupt']
  readonly #onSyncError: StateFolderDeps['onSyncError']
  readonly #syncs: LaterSyncs
  readonly #marks: RemovalMarks | undefined

  constructor(deps: StateFolderDeps, init: { readonly path: string; readonly kind: Kind }) {
    this.path = init.path
    this.#kind = init.kind
    this.#onCorrupt = deps.onCorrupt
    this.#onSyncError = deps.onSyncError
    this.#syncs = deps.syncs
    this.#marks = deps.marks
  }

  pathOf(key: ObjectKey, part: StatePart): string {
    const [namespace = NO_NAMESPACE, name = ''] = key.split('/')
    return join(this.path, namespace, `${name}${SUFFIX[part]}.json`)
  }

  /** Returns the object and the part that a file belongs to; undefined for other files. */
  identify(path: string): { readonly key: ObjectKey; readonly part: StatePart } | undefined {
    const match = /^([^/]+)\/([^/@]+)(@status|@user)?\.json$/.exec(relative(this.path, path))
    if (match === null) return undefined
    const part = match[3] === '@status' ? 'status' : match[3] === '@user' ? 'user' : 'object'
    return { key: `${match[1] ?? ''}/${match[2] ?? ''}`, part }
  }

  /** Returns undefined if the file is absent or damaged. */
  read<P extends StatePart>(key: ObjectKey, part: P): StateParts[P] | undefined {
    const path = this.pathOf(key, part)
    let text: string
    try {
      text = readFileSync(path, 'utf8')
    } catch (error) {
      if (!isMissing(error)) this.#onCorrupt(path, messageOf(error))
      return undefined
    }
    try {
      const value: unknown = JSON.parse(text)
      const complaint = this.#complaint(value, key, part)
      if (complaint === undefined) return value as StateParts[P]
      this.#onCorrupt(path, complaint)
    } catch (error) {
      this.#onCorrupt(path, messageOf(error))
    }
    return undefined
  }

  /**
   * All processes see the value at once. The disk has it some milliseconds later, and no caller waits for that, because
   * reconciling writes again what a crash of the machine damages or loses before. Throws ClusterApiError Unavailable with the path.
   */
  async write<P extends StatePart>(key: ObjectKey, part: P, value: StateParts[P]): Promise<void> {
    const path = this.pathOf(key, part)
    try {
      await writeFileUnsynced(path, `${JSON.stringify(value, undefined, 1)}\n`, join(this.path, ASIDE))
      this.#marks?.drop(this.#inState(path))
    } catch (error) {
      throw unavailable('write', path, error)
    }
    this.#syncs.add(path, (error) => this.#onSyncError(path, error))
  }

  /**
   * Creates the note of a user's object, or returns the one that another process has created. Throws as write() does.
   */
  createNote(key: ObjectKey, note: UserNote): UserNote {
    const path = this.pathOf(key, 'user')
    const text = `${JSON.stringify(note)}\n`
    try {
      if (this.#createOnce(path, text)) return note
      const other = this.read(key, 'user')
      if (other !== undefined) return other
      // A damaged file occupies the name.
      this.remove(key, 'user')
      return this.#createOnce(path, text) ? note : (this.read(key, 'user') ?? note)
    } catch (error) {
      throw error instanceof ClusterApiError ? error : unavailable('write', path, error)
    }
  }

  /** Removes a file, as its owner means it; does nothing if there is none. Throws as write() does. */
  remove(key: ObjectKey, part: StatePart): void {
    const path = this.pathOf(key, part)
    try {
      if (this.#marks !== undefined && statSync(path, { throwIfNoEntry: false }) !== undefined)
        this.#marks.add(this.#inState(path))
      unlinkSync(path)
    } catch (error) {
      if (!isMissing(error)) throw unavailable('remove', path, error)
    }
  }

  /**
   * Removes a file that a power loss has left empty, or filled with NUL octets; false if it is not so. One that another
   * process writes meanwhile stays. So does each one where there are several hubs: nobody means to remove what another
   * hub may have. Throws as write() does.
   */
  removeEmpty(key: ObjectKey, part: StatePart): boolean {
    if (this.#marks !== undefined) return false
    const path = this.pathOf(key, part)
    const aside = temporaryPath(path)
    try {
      if (!isEmpty(path)) return false
      renameSync(path, aside)
      const isStill = isEmpty(aside)
      if (!isStill) putBack(aside, path)
      unlinkSync(aside)
      return isStill
    } catch (error) {
      if (isMissing(error)) return false
      throw unavailable('remove', path, error)
    }
  }

  stamp(path: string): string | undefined {
    try {
      return stampOf(statSync(path))
    } catch {
      return undefined
    }
  }

  /** Whether a file certainly does not exist. This is not known if the whole folder is missing or unreadable. */
  lacks(path: string): boolean {
    try {
      return statSync(path, { throwIfNoEntry: false }) === undefined && statSync(this.path).isDirectory()
    } catch {
      return false
    }
  }

  #createOnce(path: string, text: string): boolean {
    const isCreated = createFileOnce(path, text, join(this.path, ASIDE))
    if (isCreated) this.#marks?.drop(this.#inState(path))
    return isCreated
  }

  #inState(path: string): string {
    return join('objects', this.#kind, relative(this.path, path))
  }

  #complaint(value: unknown, key: ObjectKey, part: StatePart): string | undefined {
    if (typeof value !== 'object' || value === null) return 'expected a JSON object'
    const complaint = shapeComplaint(this.#kind, part, value)
    if (complaint !== undefined || part !== 'object') return complaint
    return keyOf(value as KubeObject) === key ? undefined : 'metadata: expected the name and namespace of its path'
  }
}

/** Another process has put the file there since the first look. One that is newer stays. */
function putBack(aside: string, path: string): void {
  try {
    linkSync(aside, path)
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error
  }
}

function isEmpty(path: string): boolean {
  return readFileSync(path).every((octet) => octet === 0)
}

/** The only place where disk errors become a ClusterApiError. */
function unavailable(verb: string, path: string, error: unknown): ClusterApiError {
  return new ClusterApiError('Unavailable', `cannot ${verb} ${path}: ${explain(error)}`, { cause: error })
}

function explain(error: unknown): string {
  switch (errorCode(error)) {
    case 'EACCES':
    case 'EPERM':
      return 'permission denied'
    case 'EROFS':
      return 'the file system is read-only'
    case 'ENOSPC':
      return 'no space left'
    case 'EDQUOT':
      return 'the disk quota is exhausted'
    case 'ENOTDIR':
    case 'EEXIST':
      return 'a part of the path is not a folder'
    case undefined:
    default:
      return messageOf(error)
  }
}
