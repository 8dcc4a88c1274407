-- Runs once, on an empty volume: a database and a role of its own for each of the two.
\getenv airflow_password AIRFLOW_PASSWORD
\getenv reliability_password RELIABILITY_PASSWORD

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE ROLE reliability LOGIN PASSWORD :'reliability_password';

-- Whatever encoding initdb found in its environment: names and texts may be of any language.
CREATE DATABASE airflow OWNER airflow TEMPLATE template0 ENCODING 'UTF8';
CREATE DATABASE reliability OWNER reliability TEMPLATE template0 ENCODING 'UTF8';

-- By default everybody may connect everywhere.
REVOKE ALL ON DATABASE airflow, reliability FROM PUBLIC;
