-- Returns a payload uncompressed, for a statement that converts it to text. Refuses a payload whose numbers have far more
-- digits than it has bytes.
--
-- jsonb stores neither the zeros before a number's decimal point nor those after it: 1e131071 takes 12 bytes and has 131,072
-- digits. 7,900 of them are stored in 2 KB; their text of 1 GB took 10 s to create, and no other payload is loaded during that
-- time. Such an event becomes a dead letter, like one that PostgreSQL itself cannot convert: 54000 counts as unreadable.
--
-- Counts the numbers from 1e308 on, which do not fit a double, by their magnitude, to within a factor of four. That takes twice
-- as long as creating an ordinary text, so it is skipped for a payload stored in more than 256 KB: PostgreSQL gives up at 1 GB
-- of text. A payload that was compressed to less than a sixteenth is always checked, including the zeros after the point
-- (`scale`, up to 16,383): without compression such a number has 1 KB of text for each byte that it takes.
create or replace function :"schema".plain_payload(value jsonb) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $postcommit$
declare
  plain constant jsonb := value #> '{}';
  bytes constant bigint := pg_column_size(plain);
  dense constant boolean := bytes > 16 * pg_column_size(value);
  digits bigint := 0;
begin
  if dense or pg_column_size(value) <= 262144 then
    digits := coalesce((
      select sum(case when abs(n::numeric) >= 1e100000 then 100000 when abs(n::numeric) >= 1e30000 then 30000
                      when abs(n::numeric) >= 1e10000 then 10000 when abs(n::numeric) >= 1e3000 then 3000
                      when abs(n::numeric) >= 1e1000 then 1000 else 308 end)
        from jsonb_array_elements(jsonb_path_query_array(plain, 'strict $.** ? (@ >= 1e308 || @ <= -1e308)')) n), 0);
  end if;
  if dense then
    digits := digits + coalesce((
      select sum(scale(n::numeric))
        from jsonb_array_elements(jsonb_path_query_array(plain, 'strict $.** ? (@.type() == "number")')) n), 0);
  end if;
  if digits > 1048576 + 4 * bytes then
    raise exception 'the numbers of the payload have at least % digits', digits using errcode = 'program_limit_exceeded';
  end if;
  return plain;
end
$postcommit$;
