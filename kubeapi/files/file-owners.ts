/** Decides which file provides an object if several files contain it. Pure bookkeeping. */
import type { Kind, KubeObject } from '../../model/model.ts'
import { type ObjectKey, objectTitle } from '../driver/driver.ts'
import type { ParsedFile, ParsedObject } from './user/parse-objects.ts'
import type { FileProblem } from './problem-board.ts'

export interface ObjectUpdate {
  readonly kind: Kind
  readonly key: ObjectKey
  /** Undefined if no file contains it any more. */
  readonly object: KubeObject | undefined
}

interface ObjectSource {
  readonly file: string
  readonly parsed: ParsedObject
}

/** Stands for the objects of no file. */
const NO_FILE = ''

export class FileOwners {
  readonly #files = new Map<string, ParsedFile>()
  /** Files that are missing, perhaps only between two steps of an editor: any other file takes precedence. */
  readonly #yielding = new Set<string>()
  readonly #sources = new Map<string, Map<string, ParsedObject>>()
  /** Objects of no file, which count where no file has them. */
  #added: readonly ParsedObject[] = []

  file(file: string): ParsedFile | undefined {
    return this.#files.get(file)
  }

  files(): string[] {
    return [...this.#files.keys()]
  }

  get ignored(): number {
    return [...this.#files.values()].reduce((sum, { ignored }) => sum + ignored, 0)
  }

  /** Returns the effective objects, of one kind or of all. */
  objects(kind?: Kind): ObjectUpdate[] {
    return [...this.#sources.keys()].flatMap((id) => {
      const winner = this.#winner(id)
      if (winner === undefined || (kind !== undefined && winner.parsed.kind !== kind)) return []
      return [updateOf(winner.parsed, winner.parsed.object)]
    })
  }

  /** Sets the content of a file; undefined if it is gone. Returns the resulting changes of objects. */
  set(file: string, parsed: ParsedFile | undefined): ObjectUpdate[] {
    const touched = [...(this.#files.get(file)?.objects ?? []), ...(parsed?.objects ?? [])]
    return this.#during(touched, () => {
      for (const object of this.#files.get(file)?.objects ?? []) this.#retract(idOf(object), file)
      if (parsed === undefined) this.#files.delete(file)
      else this.#files.set(file, parsed)
      for (const object of parsed?.objects ?? []) this.#take(idOf(object), file, object)
      this.#yielding.delete(file)
    })
  }

  /** Sets the objects of no file. Returns the resulting changes of objects. */
  add(objects: readonly ParsedObject[]): ObjectUpdate[] {
    return this.#during([...this.#added, ...objects], () => {
      for (const object of this.#added) this.#retract(idOf(object), NO_FILE)
      this.#added = objects
      for (const object of objects) this.#take(idOf(object), NO_FILE, object)
    })
  }

  /** Marks the file as missing, perhaps only for a moment: its objects stay unless another file contains them. */
  yield(file: string): ObjectUpdate[] {
    return this.#during(this.#files.get(file)?.objects ?? [], () => this.#yielding.add(file))
  }

  /** Returns the changes of these objects that `change` causes. */
  #during(touched: readonly ParsedObject[], change: () => void): ObjectUpdate[] {
    const objects = new Map(touched.map((object) => [idOf(object), object]))
    const before = new Map([...objects.keys()].map((id) => [id, this.#winner(id)?.parsed]))
    change()
    return [...objects].flatMap(([id, object]) => {
      const winner = this.#winner(id)?.parsed
      return winner === before.get(id) ? [] : [updateOf(object, winner?.object)]
    })
  }

  /** Returns a problem for each object that several files contain, at each place that is not effective. */
  duplicates(title: (file: string) => string): FileProblem[] {
    return [...this.#sources].flatMap(([id, all]) => {
      const sources = [...all].filter(([file]) => file !== NO_FILE)
      if (sources.length < 2) return []
      const winner = this.#winner(id)
      const others = sources.filter(([file]) => file !== winner?.file && !this.#yielding.has(file))
      return others.map(([file, { kind, object, line }]) => ({
        file: title(file),
        line,
        column: 1,
        reason:
          `${objectTitle(kind, object.metadata.name, object.metadata.namespace)} is also in ` +
          `${title(winner?.file ?? '')}:${winner?.parsed.line ?? 0}, which counts; remove one of the two`,
        isKnown: true,
      }))
    })
  }

  #winner(id: string): ObjectSource | undefined {
    let best: ObjectSource | undefined
    for (const [file, parsed] of this.#sources.get(id) ?? []) {
      if (best === undefined || this.#rank(file) < this.#rank(best.file)) best = { file, parsed }
    }
    return best
  }

  #rank(file: string): string {
    if (file === NO_FILE) return '2'
    return `${this.#yielding.has(file) ? 1 : 0}${file}`
  }

  #take(id: string, file: string, object: ParsedObject): void {
    const sources = this.#sources.get(id) ?? new Map<string, ParsedObject>()
    this.#sources.set(id, sources.set(file, object))
  }

  #retract(id: string, file: string): void {
    const sources = this.#sources.get(id)
    sources?.delete(file)
    if (sources?.size === 0) this.#sources.delete(id)
  }
}

function idOf({ kind, key }: ParsedObject): string {
  return `${kind} ${key}`
}

function updateOf({ kind, key }: ParsedObject, object: KubeObject | undefined): ObjectUpdate {
  return { kind, key, object }
}
