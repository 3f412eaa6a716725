/**
 * Watches the user's folder of YAML and reports which objects changed. A file is accepted as a whole or not at all. One
 * that is invalid, unreadable or incomplete keeps its last good state, and does not affect other files.
 */
import { readFileSync, readdirSync, readlinkSync, realpathSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { FileOwners, type ObjectUpdate } from '../file-owners.ts'
import type { FileProblem } from '../problem-board.ts'
import { type FileEvent, TreeWatcher } from '../tree-watcher.ts'
import type { ParsedObject } from './parse-objects.ts'
import { UNREADABLE, type UnreadPolicies, closingPolicies, unreadPolicies } from './unread-policies.ts'
import { type GoodFile, LastGood, looksUnfinished, parseUserFile, readUserFile, stampAt } from './user-file.ts'

export interface UserFolderDeps {
  readonly clock: Clock
  /** Called once with all changes of one file. */
  readonly onUpdate: (updates: readonly ObjectUpdate[]) => void
  /** Called when the problems of a place (a file, or the duplicates) change; empty if they are resolved. */
  readonly onProblems: (place: string, problems: readonly FileProblem[]) => void
  /** Called with the files that are not valid, never were, and may hold policies, when they change. */
  readonly onUnread: (files: readonly string[]) => void
  /** Called if the state folder cannot be read or written. */
  readonly onStateError: (path: string, error: unknown) => void
}

export interface UserFolderInit {
  readonly folder: string
  /** The folder of the last good versions. */
  readonly state: string
  /** Absolute path that is not read even if it lies inside the folder: the state folder. */
  readonly exclude: string
  /**
   * How many milliseconds this process leaves it to others to store a good version. Several processes that write the same
   * file wait for each other at the disk. Absent: 0.
   */
  readonly storesAfterMs?: number
}

/** Milliseconds without another event before a file that was written in place is read. */
const SETTLE_MS = 15
/** Milliseconds that an invalid or apparently incomplete file must stay unchanged. */
const PATIENCE_MS = 300
/** Milliseconds that a file may be missing: editors remove a file and write it again. */
const VANISH_MS = 100
/**
 * Milliseconds between checks of a file that another process has open for writing; doubled each time, since a check is
 * expensive.
 */
const WRITER_MS = 50
const MAX_WRITER_MS = 1000

const DUPLICATES = 'duplicates'

interface Waiting {
  readonly cancel: () => void
}

export class UserFolder {
  readonly #deps: UserFolderDeps
  readonly #init: UserFolderInit
  readonly #owners = new FileOwners()
  readonly #lastGood: LastGood
  readonly #watcher: TreeWatcher
  /** Stamp of the last read of each file, accepted or not: unchanged files are not read again. */
  readonly #stamps = new Map<string, string>()
  readonly #hashes = new Map<string, string>()
  /** Files that were never valid and may hold policies. */
  readonly #unread = new Map<string, UnreadPolicies>()
  #closed: readonly ParsedObject[] = []
  readonly #waiting = new Map<string, Waiting>()
  /** The next pause for files that a process is writing. */
  readonly #writerMs = new Map<string, number>()
  #loading = true
  #isClosed = false
  #duplicates = ''
  #cancelDuplicates: (() => void) | undefined

  constructor(deps: UserFolderDeps, init: UserFolderInit) {
    this.#deps = deps
    this.#init = init
    this.#lastGood = new LastGood(init.state, deps.onStateError)
    this.#watcher = new TreeWatcher(
      {
        onFile: (path, event) => this.#onFile(path, event),
        onError: (path, error) => this.#onFolderError(path, error),
      },
      { root: init.folder, skip: (name, path) => name.startsWith('.') || init.exclude === resolve(path) },
    )
  }

  get claims(): FileOwners {
    return this.#owners
  }

  #store(good: GoodFile): void {
    const { storesAfterMs = 0 } = this.#init
    if (storesAfterMs === 0) {
      this.#lastGood.write(good)
      return
    }
    this.#deps.clock.setTimer(storesAfterMs, () => {
      if (!this.#isClosed && this.#hashes.get(good.file) === good.sha256) this.#lastGood.write(good)
    })
  }

  /** First read. Blocks while it parses, and does not call onUpdate. */
  load(): void {
    this.#watcher.rescan()
    this.#restoreMissing()
    this.#loading = false
    this.#reportDuplicates()
  }

  /** Finds changes that the watches missed. */
  rescan(): void {
    if (!this.#folderGone()) this.#deps.onProblems(this.#init.folder, [])
    this.#watcher.rescan()
    for (const file of this.#files()) {
      if (stampAt(this.#path(file)) === undefined && !this.#waiting.has(file)) this.#onFile(this.#path(file), 'touched')
    }
  }

  /** False while the folder is missing or has been replaced. */
  get rooted(): boolean {
    return this.#watcher.rooted
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#watcher.close()
    this.#cancelDuplicates?.()
    for (const { cancel } of this.#waiting.values()) cancel()
    await this.#lastGood.settled()
  }

  /** The path as the user writes it. */
  title(file: string): string {
    return join(this.#init.folder, file)
  }

  #path(file: string): string {
    return join(this.#init.folder, file)
  }

  #onFile(path: string, event: FileEvent): void {
    const file = relative(this.#init.folder, path)
    if (event !== 'found') this.#writerMs.delete(file)
    if (!/\.(ya?ml|json)$/.test(file)) {
      this.#onFolderGone(file)
      return
    }
    if (event === 'found') {
      if (this.#loading) this.#examine(file, 'first')
      else if (!this.#waiting.has(file) && stampAt(path) !== this.#stamps.get(file))
        this.#wait(file, SETTLE_MS, 'settled')
    } else if (event === 'moved') {
      this.#examine(file, 'complete')
    } else if (stampAt(path) === undefined) {
      // Handled at once, so that a renamed file never seems to exist twice.
      this.#examine(file, 'settled')
    } else {
      this.#wait(file, SETTLE_MS, 'settled')
    }
  }

  /** All files that count in some way. */
  #files(): readonly string[] {
    return [...this.#owners.files(), ...this.#unread.keys()]
  }

  /** The files of a removed or renamed folder are gone, too; the kernel names only the folder. */
  #onFolderGone(folder: string): void {
    for (const file of this.#files()) {
      if (file.startsWith(`${folder}/`) && stampAt(this.#path(file)) === undefined)
        this.#wait(file, SETTLE_MS, 'settled')
    }
  }

  #wait(file: string, ms: number, how: Confidence): void {
    this.#waiting.get(file)?.cancel()
    const cancel = this.#deps.clock.setTimer(ms, () => {
      this.#waiting.delete(file)
      this.#examine(file, how)
    })
    this.#waiting.set(file, { cancel })
  }

  #examine(file: string, how: Confidence): void {
    this.#waiting.get(file)?.cancel()
    this.#waiting.delete(file)
    const reading = readUserFile(this.#path(file), this.title(file))
    switch (reading.is) {
      case 'missing':
        this.#onMissing(file, how)
        return
      case 'unreadable':
        this.#keep(file, [reading.problem], how)
        if (how === 'settled') this.#wait(file, PATIENCE_MS, 'patient')
        else this.#closeIfNew(file, () => UNREADABLE)
        return
      case 'text':
        this.#stamps.set(file, reading.stamp)
        this.#validate(file, how, reading)
    }
  }

  #validate(file: string, how: Confidence, { text, sha256 }: { readonly text: string; readonly sha256: string }): void {
    const known = how === 'first' ? this.#lastGood.read(file) : undefined
    if (known?.sha256 === sha256) {
      this.#set(file, known)
      return
    }
    const before = this.#owners.file(file)
    if (before !== undefined && this.#hashes.get(file) === sha256) {
      this.#accept({ file, sha256, parsed: before })
      return
    }
    if (how === 'settled' && this.#waitForWriter(file)) return
    const result = parseUserFile(this.title(file), text)
    const doubtful = 'problems' in result || looksUnfinished(text, result.file, before)
    // A file that is created right after another was removed looks as if it had been renamed.
    if (how === 'complete' && doubtful && this.#waitForWriter(file)) return
    if ('problems' in result) {
      if (how === 'settled') this.#wait(file, PATIENCE_MS, 'patient')
      else {
        this.#keep(file, result.problems, how)
        this.#closeIfNew(file, () => unreadPolicies(text))
      }
    } else if (how === 'settled' && doubtful) {
      this.#wait(file, PATIENCE_MS, 'patient')
    } else if (how === 'first' && known !== undefined && looksUnfinished(text, result.file, known.parsed)) {
      // The process may have started during a save: keep the last good state until the file has not changed for a
      // while.
      this.#set(file, known)
      this.#wait(file, PATIENCE_MS, 'patient')
    } else {
      this.#accept({ file, sha256, parsed: result.file })
    }
  }

  /** Returns true if a process is writing the file; it is checked again later. */
  #waitForWriter(file: string): boolean {
    if (!isOpenForWriting(this.#path(file))) return false
    const ms = this.#writerMs.get(file) ?? WRITER_MS
    this.#writerMs.set(file, Math.min(2 * ms, MAX_WRITER_MS))
    this.#wait(file, ms, 'settled')
    return true
  }

  #accept(good: GoodFile): void {
    this.#deps.onProblems(good.file, [])
    this.#set(good.file, good)
    this.#store(good)
  }

  /** Keeps the last good state of an invalid file. */
  #keep(file: string, problems: readonly FileProblem[], how: Confidence): void {
    if (how === 'first') {
      const good = this.#lastGood.read(file)
      if (good !== undefined) this.#set(file, good)
    }
    this.#deps.onProblems(file, problems)
  }

  /** Without a last good state, policies that the file may hold close what they may be about. */
  #closeIfNew(file: string, held: () => UnreadPolicies | undefined): void {
    this.#setUnread(file, this.#owners.file(file) === undefined ? held() : undefined)
  }

  #setUnread(file: string, found: UnreadPolicies | undefined): void {
    if (found === undefined && !this.#unread.has(file)) return
    if (found === undefined) this.#unread.delete(file)
    else this.#unread.set(file, found)
    this.#deps.onUnread([...this.#unread.keys()].map((one) => this.title(one)).sort())
    this.#publish([])
  }

  /** Closes what unread policies may be about, and opens it again once they are mended. */
  #close(): readonly ObjectUpdate[] {
    if (this.#unread.size === 0 && this.#closed.length === 0) return []
    const exporting = this.#owners.objects('ServiceExport').map(({ key }) => key.slice(0, key.indexOf('/')))
    const unread = new Map([...this.#unread].map(([file, found]) => [this.title(file), found]))
    const closed = closingPolicies(unread, new Set(exporting))
    if (isDeepStrictEqual(closed, this.#closed)) return []
    this.#closed = closed
    return this.#owners.add(closed)
  }

  #onMissing(file: string, how: Confidence): void {
    this.#stamps.delete(file)
    this.#writerMs.delete(file)
    if (this.#folderGone()) {
      // If the whole folder is unmounted or replaced, its objects are not known to be removed.
      this.#onFolderError(this.#init.folder, new Error('no such folder'))
    } else if (how === 'vanished') {
      this.#hashes.delete(file)
      this.#lastGood.forget(file)
      this.#deps.onProblems(file, [])
      this.#setUnread(file, undefined)
      this.#publish(this.#owners.set(file, undefined))
    } else if (this.#owners.file(file) !== undefined || this.#unread.has(file)) {
      this.#publish(this.#owners.yield(file))
      this.#wait(file, VANISH_MS, 'vanished')
    } else {
      this.#deps.onProblems(file, [])
    }
  }

  #set(file: string, good: GoodFile): void {
    this.#writerMs.delete(file)
    this.#hashes.set(file, good.sha256)
    this.#publish(this.#owners.set(file, good.parsed))
    this.#setUnread(file, undefined)
  }

  #publish(changed: readonly ObjectUpdate[]): void {
    // Policies that close come before the exports that they are about.
    const updates = [...this.#close(), ...changed]
    if (this.#loading) return
    if (updates.length > 0) this.#deps.onUpdate(updates)
    // Delayed, since files seem to exist twice while their folder is being moved.
    this.#cancelDuplicates?.()
    this.#cancelDuplicates = this.#deps.clock.setTimer(VANISH_MS, () => this.#reportDuplicates())
  }

  #reportDuplicates(): void {
    const problems = this.#owners.duplicates((file) => this.title(file))
    const text = JSON.stringify(problems)
    if (text === this.#duplicates) return
    this.#duplicates = text
    this.#deps.onProblems(DUPLICATES, problems)
  }

  /**
   * Forgets the good versions of files that were deleted while no process was watching; if the folder is missing,
   * restores all.
   */
  #restoreMissing(): void {
    const folderGone = this.#folderGone()
    for (const file of this.#lastGood.files()) {
      if (this.#owners.file(file) !== undefined || this.#stamps.has(file)) continue
      const good = this.#lastGood.read(file)
      if (folderGone && good !== undefined) this.#set(file, good)
      else if (stampAt(this.#path(file)) === undefined) this.#lastGood.forget(file)
    }
  }

  #folderGone(): boolean {
    return stampAt(this.#init.folder) === undefined
  }

  #onFolderError(path: string, error: unknown): void {
    const reason = messageOf(error)
    this.#deps.onProblems(path, [{ file: path, line: 1, column: 1, reason }])
  }
}

/**
 * How certain it is that a file is complete: first (at start), complete (put in place by a rename), settled (no event
 * for a moment), patient (unchanged for longer), vanished (missing for longer).
 */
type Confidence = 'first' | 'complete' | 'settled' | 'patient' | 'vanished'

// Whether a process has a file open for writing, as far as /proc shows it.

/**
 * True only if a writer is visible. Processes of other users (except to root) and of other PID namespaces are not, so
 * false means that no writer is known. Node does not expose inotify's close event.
 */
function isOpenForWriting(path: string): boolean {
  try {
    const real = realpathSync(path)
    return readdirSync('/proc').some((name) => /^\d+$/.test(name) && processWrites(name, real))
  } catch {
    return false
  }
}

function processWrites(pid: string, real: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => descriptorWrites(pid, fd, real))
  } catch {
    // The process has ended, or belongs to another user.
    return false
  }
}

function descriptorWrites(pid: string, fd: string, real: string): boolean {
  try {
    if (readlinkSync(`/proc/${pid}/fd/${fd}`) !== real) return false
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8'))?.[1]
    // The two lowest bits of the open flags; 0 is read-only.
    return flags !== undefined && (Number.parseInt(flags, 8) & 3) !== 0
  } catch {
    return false
  }
}
