/**
 * The files of one kind: the user's objects from the folder and ours from the state, merged in a KindStore and kept
 * current by watches. It always shows what was last read from disk, so that all processes agree.
 */
import { createHash, randomUUID } from 'node:crypto'
import type { Stats } from 'node:fs'
import type { Kind, KubeObject } from '../../model/model.ts'
import type { Clock, WriteQueue } from '../../reconcile/reconcile.ts'
import { KindStore, type ObjectKey, type StoredStatus, specParts } from '../driver/driver.ts'
import { type LaterSyncs, removeStaleTemporaries } from './atomic-write.ts'
import type { ObjectUpdate } from './file-owners.ts'
import type { RemovalMarks } from './removal-marks.ts'
import { StateFolder, type StatePart, type UserNote } from './state-folder.ts'
import { type FileEvent, TreeWatcher } from './tree-watcher.ts'
import { stampOf } from './user/user-file.ts'

export interface KindFilesDeps {
  readonly clock: Clock
  readonly onCorrupt: (path: string, reason: string) => void
  /** Called if a note could not be written: it then exists only in this process. */
  readonly onStateError: (path: string, error: unknown) => void
  /** Of all kinds. */
  readonly syncs: LaterSyncs
  /** See StateFolderDeps. */
  readonly marks?: RemovalMarks | undefined
  /** Of all kinds. Writes of an object are queued under writeId(). */
  readonly writes: WriteQueue
}

export interface KindFilesInit {
  readonly kind: Kind
  /** `<state>/objects/<Kind>` */
  readonly path: string
  /** See FileApiInit. */
  readonly notesAfterMs: number
  /** A command that reads once leaves it to processes that run to note objects. */
  readonly once: boolean
}

/** Longer than a file may be missing before its objects are removed. */
const RENOTE_MS = 500
/** A file that the disk did not take is written again after this time. */
export const REWRITE_MS = 5000
/** An empty file is removed if no process has written it again within this time. */
export const UNWANTED_MS = 600_000

/** Of the queue of writes: those of one object run one after another. */
export function writeId(kind: Kind, key: ObjectKey): string {
  return `${kind} ${key}`
}

export class KindFiles {
  readonly store = new KindStore<Kind>()
  readonly folder: StateFolder
  readonly #deps: KindFilesDeps
  readonly #watcher: TreeWatcher
  /** The user's objects as in the YAML, without the notes. */
  readonly #users = new Map<ObjectKey, KubeObject>()
  readonly #notes = new Map<ObjectKey, UserNote>()
  readonly #stamps = new Map<string, string>()
  /** Stamps of files that this process has written and read, until their events arrive: these say nothing new. */
  readonly #echoes = new Map<string, string>()
  readonly #notesAfterMs: number
  readonly #once: boolean
  readonly #writes = new Set<Promise<void>>()
  /** Paths of files that are to be written again. */
  readonly #unsynced = new Set<string>()
  /** Paths of damaged files whose repair is queued. */
  readonly #repairs = new Set<string>()
  /** When each damaged file was found, in monotonic milliseconds, by its path. */
  readonly #damagedMs = new Map<string, number>()
  readonly #kind: Kind
  #closed = false

  constructor(deps: KindFilesDeps, init: KindFilesInit) {
    this.#deps = deps
    this.#kind = init.kind
    this.#notesAfterMs = init.notesAfterMs
    this.#once = init.once
    this.folder = new StateFolder(
      {
        onCorrupt: (path, reason) => this.#onCorrupt(path, reason),
        onSyncError: (path, error) => this.#onSyncError(path, error),
        syncs: deps.syncs,
        marks: deps.marks,
      },
      init,
    )
    this.#watcher = new TreeWatcher(
      { onFile: (path, event, stats) => this.#onFile(path, event, stats), onError: deps.onStateError },
      { root: init.path, skip: (name) => name.startsWith('.') },
    )
  }

  /**
   * Reads the state's files, then the user's objects. Unless `anyway` is set, nothing is shown while a folder of the
   * state cannot be read: an object that cannot be read must not count as removed. The call may then be repeated; after
   * a complete read it does nothing.
   */
  load(users: readonly ObjectUpdate[], anyway = false): void {
    if (this.loaded) return
    removeStaleTemporaries(this.folder.path, this.#deps.clock.now())
    this.#watcher.rescan()
    if (!this.#watcher.complete && !anyway) return
    for (const { key, object } of users) this.setUser(key, object)
    for (const key of this.#orphans()) this.#forgetUser(key)
    this.store.open()
  }

  /** Finds changes that the watches missed. */
  rescan(): void {
    this.#echoes.clear()
    this.#watcher.rescan()
    for (const path of [...this.#stamps.keys()]) this.#onFile(path, 'found')
    if (!this.#once) this.#removeUnwanted()
  }

  get loaded(): boolean {
    return this.store.cache.synced
  }

  get rooted(): boolean {
    return this.#watcher.rooted
  }

  /** Stops the watches and waits for pending notes. */
  async close(): Promise<void> {
    this.#closed = true
    this.#watcher.close()
    await Promise.all(this.#writes)
  }

  /** Sets the user's object as in the YAML; undefined if it is gone. */
  setUser(key: ObjectKey, object: KubeObject | undefined): void {
    if (object === undefined) {
      this.#users.delete(key)
      this.#forgetUser(key)
      this.store.update(key, { user: undefined })
    } else {
      this.#users.set(key, object)
      // Once this kind is shown, one more moment without a new object is as if its file had been written later.
      const isLeft = this.#notesAfterMs > 0 && this.loaded && !this.#isNoted(key, object)
      if (isLeft) this.#noteLater(key, this.#notesAfterMs, object)
      else this.#showUser(key, object, this.#keepNote(key, object))
    }
  }

  imply(key: ObjectKey, object: KubeObject | undefined): void {
    this.store.update(key, { implied: object })
  }

  /** Shows a file that this process has just written. */
  wrote(key: ObjectKey, part: StatePart): void {
    const path = this.folder.pathOf(key, part)
    const stamp = this.folder.stamp(path)
    // The event may have come first.
    if (stamp !== undefined && this.#stamps.get(path) === stamp) return
    this.refresh(key, part, stamp)
    if (stamp !== undefined) this.#echoes.set(path, stamp)
  }

  /** Reads one file again and shows its content. `known`: its stamp, if the caller has just looked. */
  refresh(key: ObjectKey, part: StatePart, known?: string): void {
    const path = this.folder.pathOf(key, part)
    const stamp = known ?? this.folder.stamp(path)
    if (stamp === undefined && !this.folder.lacks(path)) {
      // The file may exist but be unreadable; reading it reports the reason, if there is one.
      this.folder.read(key, part)
      return
    }
    if (stamp === undefined) this.#stamps.delete(path)
    else this.#stamps.set(path, stamp)
    if (part === 'object') {
      const ours = this.folder.read(key, 'object')
      // The file exists but is damaged: the known object stays, and #onCorrupt() writes it again.
      if (ours !== undefined || stamp === undefined) this.store.update(key, { ours })
    } else if (part === 'status') {
      const status = this.folder.read(key, 'status')
      if (status !== undefined || stamp === undefined) this.store.update(key, { status })
    } else {
      this.#refreshNote(key)
    }
  }

  #onFile(path: string, event: FileEvent, stats?: Stats): void {
    const file = this.folder.identify(path)
    if (file === undefined) return
    const stamp = stats === undefined ? undefined : stampOf(stats)
    if (event === 'found') {
      if (this.#stamps.has(path) && this.#stamps.get(path) === this.folder.stamp(path)) return
    } else {
      const echo = this.#echoes.get(path)
      this.#echoes.delete(path)
      if (echo !== undefined && echo === stamp) return
    }
    this.refresh(file.key, file.part, stamp)
  }

  /** Applies a note that another process wrote or removed. */
  #refreshNote(key: ObjectKey): void {
    const note = this.folder.read(key, 'user')
    const object = this.#users.get(key)
    if (note !== undefined) this.#notes.set(key, note)
    if (object === undefined) return
    // Another process saw the object disappear. Either this process will see it, too, or the note was lost and is
    // written again.
    if (note === undefined) this.#noteLater(key, RENOTE_MS)
    else this.#showUser(key, object, note)
  }

  /** Leaves it to other processes for some time to note an object. `fresh`: the object, if it has just come. */
  #noteLater(key: ObjectKey, ms: number, fresh?: KubeObject): void {
    this.#deps.clock.setTimer(ms, () => {
      const object = this.#users.get(key)
      if (object === undefined || this.#closed) return
      // It is shown since its note came, and no file is read for it once more.
      if (object === fresh && this.#notes.get(key)?.specHash === specHash(object)) return
      this.#showUser(key, object, this.#keepNote(key, object))
    })
  }

  #isNoted(key: ObjectKey, object: KubeObject): boolean {
    return this.folder.read(key, 'user')?.specHash === specHash(object)
  }

  #showUser(key: ObjectKey, object: KubeObject, note: UserNote): void {
    const { uid, creationTimestamp } = object.metadata
    const metadata = {
      ...object.metadata,
      uid: uid ?? note.uid,
      creationTimestamp: creationTimestamp ?? note.creationTimestamp,
      generation: note.generation,
    }
    this.store.update(key, { user: { ...object, metadata } })
  }

  /** Returns the note of an object, created or updated if necessary. */
  #keepNote(key: ObjectKey, object: KubeObject): UserNote {
    const wanted = specHash(object)
    const known = this.folder.read(key, 'user')
    let note = known ?? this.#newNote(wanted)
    try {
      if (known === undefined && !this.#once) note = this.folder.createNote(key, note)
      if (note.specHash !== wanted) {
        note = { ...note, generation: note.generation + 1, specHash: wanted }
        const written = note
        if (!this.#once) this.#queue(key, () => this.folder.write(key, 'user', written))
      }
    } catch (error) {
      this.#deps.onStateError(this.folder.path, error)
      note = this.#notes.get(key) ?? note
    }
    this.#notes.set(key, note)
    return note
  }

  #newNote(specHash: string): UserNote {
    const creationTimestamp = new Date(this.#deps.clock.now()).toISOString().replace(/\.\d+Z$/, 'Z')
    return { uid: randomUUID(), creationTimestamp, generation: 1, specHash }
  }

  /** Returns the keys of notes whose object was removed while no process was watching. */
  #orphans(): ObjectKey[] {
    return [...this.#notes.keys()].filter((key) => !this.#users.has(key))
  }

  /**
   * Removes the note and the status of an object, unless another process has already noted its successor. An object
   * that is created again is a new one.
   */
  #forgetUser(key: ObjectKey): void {
    const known = this.#notes.get(key)
    this.#notes.delete(key)
    try {
      const stored = this.folder.read(key, 'user')
      if (stored === undefined || stored.uid !== known?.uid) return
      this.folder.remove(key, 'user')
      if (this.folder.read(key, 'status')?.uid === known.uid) this.folder.remove(key, 'status')
    } catch (error) {
      this.#deps.onStateError(this.folder.path, error)
    }
  }

  /** Reports a damaged file, and writes it again if this process knows the content. */
  #onCorrupt(path: string, reason: string): void {
    this.#deps.onCorrupt(path, reason)
    const file = this.folder.identify(path)
    if (file === undefined) return
    if (!this.#damagedMs.has(path)) this.#damagedMs.set(path, this.#deps.clock.monotonic())
    const { key, part } = file
    if (part === 'user' || this.#repairs.has(path) || this.#known(key, part) === undefined) return
    this.#repairs.add(path)
    this.#queue(key, async () => {
      try {
        // apply() or remove() may have been first.
        if (this.folder.lacks(path) || this.folder.read(key, part) !== undefined) return
        const value = this.#known(key, part)
        if (value !== undefined) await this.folder.write(key, part, value)
      } finally {
        this.#repairs.delete(path)
      }
    })
  }

  #known(key: ObjectKey, part: 'object' | 'status'): KubeObject | StoredStatus | undefined {
    const { ours, status } = this.store.layers(key)
    return part === 'object' ? ours : status
  }

  /** Removes files that a power loss has emptied and that nobody writes again: each start would report them. */
  #removeUnwanted(): void {
    const now = this.#deps.clock.monotonic()
    for (const [path, sinceMs] of this.#damagedMs) {
      const file = this.folder.identify(path)
      if (now - sinceMs < UNWANTED_MS || file === undefined) continue
      this.#damagedMs.delete(path)
      // What this process knows is shown, and written again once the disk takes it.
      if (file.part !== 'user' && this.#known(file.key, file.part) !== undefined) continue
      try {
        this.folder.removeEmpty(file.key, file.part)
      } catch (error) {
        this.#deps.onStateError(path, error)
      }
    }
  }

  /** Reports a file that the disk did not take, and writes it again later, as it is then. */
  #onSyncError(path: string, error: unknown): void {
    this.#deps.onStateError(path, error)
    const file = this.folder.identify(path)
    if (file === undefined || this.#unsynced.has(path)) return
    this.#unsynced.add(path)
    this.#deps.clock.setTimer(REWRITE_MS, () => {
      this.#unsynced.delete(path)
      if (this.#closed) return
      this.#queue(file.key, async () => {
        // A damaged file is written again by #onCorrupt().
        const value = this.folder.read(file.key, file.part)
        if (value === undefined) return
        try {
          await this.folder.write(file.key, file.part, value)
        } catch (failure) {
          this.#onSyncError(path, failure)
        }
      })
    })
  }

  /** Writes in the background, after what is queued for the object: no caller waits for notes and repairs. */
  #queue(key: ObjectKey, action: () => Promise<void>): void {
    const write = this.#deps.writes.run(writeId(this.#kind, key), action).catch((error: unknown) => {
      this.#deps.onStateError(this.folder.path, error)
    })
    this.#writes.add(write)
    void write.then(() => this.#writes.delete(write))
  }
}

function specHash(object: KubeObject): string {
  return createHash('sha256')
    .update(JSON.stringify(specParts(object)))
    .digest('hex')
}
