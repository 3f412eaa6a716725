/** Which members report that they import nothing of a namespace or a service, whoever exports it. */
import type { RecordBody } from '../../model/model.ts'

export interface Reporters {
  /** About the service. */
  readonly named: Iterable<string>
  /** About all services of the namespace. */
  readonly all: Iterable<string>
}

export class Findings {
  /** What each member reports on, as `namespace/name`, or `namespace/` for all. */
  readonly #places = new Map<string, readonly string[]>()
  readonly #reporters = new Map<string, Set<string>>()

  clear(): void {
    this.#places.clear()
    this.#reporters.clear()
  }

  /** Takes the latest status of a member. Undefined: it has none. */
  take(reporter: string, body: RecordBody | undefined): void {
    for (const place of this.#places.get(reporter) ?? []) {
      const there = this.#reporters.get(place)
      there?.delete(reporter)
      if (there?.size === 0) this.#reporters.delete(place)
    }
    const findings = body?.kind === 'MemberStatus' ? body.notImported : []
    const places = findings.flatMap(({ cluster, namespace, name }) => (cluster === '' ? [`${namespace}/${name}`] : []))
    if (places.length === 0) this.#places.delete(reporter)
    else this.#places.set(reporter, places)
    for (const place of places)
      this.#reporters.set(place, (this.#reporters.get(place) ?? new Set<string>()).add(reporter))
  }

  about(namespace: string, name: string): Reporters {
    return {
      named: this.#reporters.get(`${namespace}/${name}`) ?? [],
      all: this.#reporters.get(`${namespace}/`) ?? [],
    }
  }
}
