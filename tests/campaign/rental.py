"""A shop that rents films, in several stores: the classic sample schema, written down from its description.

Each table's key begins with the store, which places its rows. There are composite and self-referencing foreign keys,
unique keys, checks, numerics, points in time, arrays and nulls. Every transaction makes a store's ``version`` one
larger and pays once with that version.
"""

from __future__ import annotations

STORES = 6
SCHEMA = """
CREATE TABLE stores (store int PRIMARY KEY, title varchar(40) NOT NULL UNIQUE, version bigint NOT NULL);
CREATE TABLE staff (store int NOT NULL, staff int NOT NULL, manager int, email varchar(80) NOT NULL,
  PRIMARY KEY (store, staff), UNIQUE (store, email), FOREIGN KEY (store) REFERENCES stores (store),
  FOREIGN KEY (store, manager) REFERENCES staff (store, staff));
CREATE TABLE films (store int NOT NULL, film int NOT NULL, original int, title varchar(80) NOT NULL,
  rate numeric(4,2) NOT NULL CHECK (rate > 0), features text[], released date NOT NULL, PRIMARY KEY (store, film),
  FOREIGN KEY (store) REFERENCES stores (store), FOREIGN KEY (store, original) REFERENCES films (store, film));
CREATE TABLE customers (store int NOT NULL, customer int NOT NULL, name varchar(80) NOT NULL, active boolean NOT NULL,
  paid numeric(12,2) NOT NULL CHECK (paid >= 0), joined timestamptz NOT NULL, PRIMARY KEY (store, customer),
  FOREIGN KEY (store) REFERENCES stores (store));
CREATE TABLE inventory (store int NOT NULL, item int NOT NULL, film int NOT NULL,
  rented int NOT NULL CHECK (rented >= 0), PRIMARY KEY (store, item),
  FOREIGN KEY (store, film) REFERENCES films (store, film));
CREATE TABLE rentals (store int NOT NULL, rental bigint NOT NULL, item int NOT NULL, customer int NOT NULL,
  staff int NOT NULL, rented_at timestamptz NOT NULL, returned_at timestamptz, PRIMARY KEY (store, rental),
  CHECK (returned_at IS NULL OR returned_at >= rented_at), FOREIGN KEY (store, item) REFERENCES inventory (store, item),
  FOREIGN KEY (store, customer) REFERENCES customers (store, customer),
  FOREIGN KEY (store, staff) REFERENCES staff (store, staff));
CREATE TABLE payments (store int NOT NULL, payment bigint NOT NULL, rental bigint, customer int NOT NULL,
  amount numeric(5,2) NOT NULL CHECK (amount > 0), version bigint NOT NULL, PRIMARY KEY (store, payment),
  UNIQUE (store, version), FOREIGN KEY (store, rental) REFERENCES rentals (store, rental),
  FOREIGN KEY (store, customer) REFERENCES customers (store, customer));
CREATE INDEX rentals_of_item ON rentals (store, item);
CREATE INDEX payments_of_rental ON payments (store, rental);
"""
# What MariaDB calls these types.
IN_MARIADB = {"text[]": "longtext", "timestamptz": "datetime(6)"}
FILL = f"""
CREATE SEQUENCE rental_ids;
INSERT INTO stores SELECT s, 'store ' || s, 0 FROM generate_series(1, {STORES}) s;
INSERT INTO staff SELECT s, n, nullif(n - 1, 0), n || '@store' || s FROM generate_series(1, {STORES}) s,
  generate_series(1, 3) n;
INSERT INTO films SELECT s, f, CASE WHEN f > 10 THEN f - 10 END, 'film ' || f, 0.99 + f % 5,
  CASE WHEN f % 4 > 0 THEN ARRAY['trailer', 'cut "' || f || '"', NULL] END, date '2006-02-14' + f
  FROM generate_series(1, {STORES}) s, generate_series(1, 40) f;
INSERT INTO customers SELECT s, c, 'customer ' || c, c % 7 > 0, 0,
  timestamptz '2006-02-14 22:04:36+01' + c * interval '1 h' FROM generate_series(1, {STORES}) s,
  generate_series(1, 60) c;
INSERT INTO inventory SELECT s, i, 1 + i % 40, 0 FROM generate_series(1, {STORES}) s, generate_series(1, 80) i;
"""
SCRIPT = f"""
\\set store random(1, {STORES})
\\set item random(1, 80)
\\set customer random(1, 60)
\\set staff random(1, 3)
\\set cents random(1, 9999)
\\set kind random(1, 8)
BEGIN;
UPDATE stores SET version = version + 1 WHERE store = :store;
UPDATE rentals SET returned_at = clock_timestamp() WHERE store = :store AND item = :item AND returned_at IS NULL;
INSERT INTO rentals VALUES (:store, nextval('rental_ids'), :item, :customer, :staff, clock_timestamp(), NULL)
  RETURNING rental \\gset
INSERT INTO payments SELECT store, nextval('rental_ids'), :rental, :customer, :cents / 100.0, version FROM stores
  WHERE store = :store;
UPDATE customers SET paid = paid + :cents / 100.0, active = NOT active WHERE store = :store AND customer = :customer;
UPDATE inventory SET rented = rented + 1 WHERE store = :store AND item = :item;
SELECT coalesce(min(rental), 0) AS oldest FROM rentals WHERE store = :store \\gset
UPDATE payments SET rental = NULL WHERE :kind = 1 AND store = :store AND rental = :oldest;
DELETE FROM rentals WHERE :kind = 1 AND store = :store AND rental = :oldest;
END;
"""
TABLES = {
    "stores": "store, title, version",
    "staff": "store, staff, manager, email",
    "films": "store, film, original, title, rate, features, released",
    "customers": "store, customer, name, active, paid, joined",
    "inventory": "store, item, film, rented",
    "rentals": "store, rental, item, customer, staff, rented_at, returned_at",
    "payments": "store, payment, rental, customer, amount, version",
}
# Each gives a store and a number that is the same in all of them.
VERSIONS = [
    "SELECT store, version FROM stores",
    "SELECT store, count(*) FROM payments GROUP BY store",
    "SELECT store, max(version) FROM payments GROUP BY store",
]
PAID = [
    "SELECT store, sum(paid) FROM customers GROUP BY store",
    "SELECT store, sum(amount) FROM payments GROUP BY store",
]
